# SPDX-License-Identifier: Apache-2.0
"""Nothing that somebody else named moves a cursor, sets a title, turns a line round or begins one.

The attacker here may choose what an ordinary user may: names of mounts, disks, networks, files and processes, marks,
reasons of pins; and, for who reads what others sent, what stands in archives and configurations.
"""

import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from rich.console import Console, Group

from sysmon_tools import explaining, formats, listing, rows
from sysmon_tools.busiest import Busy
from sysmon_tools.panel import Scene, Storage, frame
from sysmon_tools.signs import ASCII_SIGNS, SIGNS
from sysmon_tools.style import Style
from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import ABSENT, Cause, Metric, Semantics, Sensitivity, Table
from sysmond.base.result import Answered, Column, Entry, Event, Explanation, Gap, Lacking, LongEntry, Result
from sysmond.base.terminal import escape, printable, put, say
from sysmond.base.timespec import Notation
from sysmond.errors import Error
from sysmond.machine.folders import Folders
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.newest import Follower
from sysmond.ring.writer import RingWriter
from tests.support.machine import Machine
from tests.support.waiting import HANG_S

# A title, a colour by ESC and by CSI, DEL, a line turned round, isolates, line ends of every kind, nothing one can
# see, a byte that is no UTF-8 and is CSI on an 8-bit terminal.
HOSTILE = "a\x1b]0;T\x07\x1b[41m\x7f\x9b31m\u202egnp\u2066\u2028\u2029\x85\x0b\x0c\r\nforged: x\u200b\u00ad\udc9bz"
BOOT = "d" * 32


def harmless(printed: bytes, *, tabs: bool = False) -> str:
    """What was printed, if a terminal shows all of it and obeys nothing."""
    text = printed.decode("utf-8")
    for line in text.split("\n"):
        assert line.replace("\t", "" if tabs else "\t").isprintable(), repr(line)
        assert not line.startswith("forged"), repr(text)
    return text


class Printed(NamedTuple):
    """What a program printed, and how it ended."""

    out: str
    err: str
    code: int


def run(*words: str, cwd: Path | None = None) -> Printed:
    program, *rest = words
    main = f"import sys; from {program} import main; sys.exit(main())"
    command = [sys.executable, "-P", "-c", main, *rest]
    done = subprocess.run(command, capture_output=True, check=False, timeout=HANG_S, cwd=cwd)
    tabs = "--format=tsv" in words
    return Printed(harmless(done.stdout, tabs=tabs), harmless(done.stderr), done.returncode)


def where(folders: Folders) -> list[str]:
    return ["--state-dir", folders.state, "--runtime-dir", folders.runtime]


# --- the live view --------------------------------------------------------------------------------


def hostile_scene(runtime: Path) -> Scene:
    """A machine on which everything that has a name has that one."""

    def metrics(*names: str, unit: str = "B") -> tuple[Metric, ...]:
        return tuple(Metric(name, unit, Semantics.COUNTER, "Counts.") for name in names)

    texts = ("hostname", "kernel")
    tables = (
        Table("filesystem", (*metrics("size", "free"), Metric("device", "text", Semantics.STATE, "Which.")), "mount"),
        Table("disk", metrics("reads", "writes", "read_bytes"), "device"),
        Table("network", metrics("received_bytes", "sent_bytes"), "interface"),
        Table("cpu", metrics("user", "system", unit="s"), "cpu"),
        Table("pressure", metrics("some_total", "full_total", unit="s"), "resource"),
        Table("host", tuple(Metric(name, "text", Semantics.STATE, "Name.") for name in texts)),
        Table("socket", metrics("used", unit="1")),
    )
    folder = runtime / "sampler/public"
    folder.mkdir(parents=True)
    identity = Identity(BOOT, "sampler", Sensitivity.PUBLIC, 1, SECOND_NS)
    ring = RingWriter(str(folder / "1.ring"), 2**20, identity, [Layout(table, SECOND_NS) for table in tables])
    for tick in range(100, 103):
        at = tick * SECOND_NS
        ring.clock(Relation(at, at + 10**18, at))
        ring.rows(0, at, (f"/mnt/{HOSTILE}",), [2**30, 2**20, ring.text(f"{HOSTILE}:/x")])
        ring.rows(1, at, (HOSTILE,), [tick, tick, tick * 2**20])
        ring.rows(2, at, (HOSTILE,), [tick * 1000, tick])
        ring.rows(3, at, (HOSTILE, "total"), [tick, ABSENT, tick, ABSENT])
        ring.rows(4, at, (HOSTILE,), [tick, tick])
        ring.rows(5, at, ("",), [ring.text(HOSTILE) for _ in texts])
        ring.absence(6, at, Cause.PROBE_FAILED, HOSTILE)
    now = Follower(Folders("/nowhere", str(runtime))).read()
    stored = Storage(1, 1, 1, 1, 1000.0, f"/{HOSTILE}")
    return Scene(now, stored, 102 * SECOND_NS, 1300.0, [HOSTILE, HOSTILE], HOSTILE, (Busy(HOSTILE, 7, 0.5),))


@pytest.mark.parametrize("signs", [SIGNS, ASCII_SIGNS])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (300, 60), (20, 10)])
def test_the_live_view_shows_hostile_names_and_obeys_none(runtime: Path, width: int, height: int, signs: Any) -> None:
    lines = frame(hostile_scene(runtime), width, height, signs)
    shown = "\n".join(line.plain for line in lines)
    harmless(shown.encode())
    assert all(line.cell_len <= width for line in lines)
    if width > 200:
        assert shown.count(r"a\x1b]0;T\x07") >= 6
    drawn = io.StringIO()
    Console(file=drawn, width=width, color_system=None, force_terminal=False).print(Group(*lines))
    harmless(drawn.getvalue().encode())


# --- answers --------------------------------------------------------------------------------------


def hostile_result() -> Result:
    times = np.arange(3, dtype=np.int64) * SECOND_NS + 1_700_000_000 * SECOND_NS
    number = Column(f"filesystem/used@{HOSTILE}", "B", Semantics.GAUGE, "mean", integers=np.array([1, 2, 3]))
    words = Column(f"disk/model@{HOSTILE}", "text", Semantics.STATE, "last", texts=(HOSTILE, None, ""))
    gap = Gap(0, SECOND_NS, HOSTILE, Cause.PROBE_FAILED, HOSTILE)
    event = Event(SECOND_NS, "mark", HOSTILE, HOSTILE)
    made = Result(times, (number, words), (gap,), SECOND_NS, events=(event,))
    origin = Explanation(
        number.path, "mean", HOSTILE, HOSTILE, HOSTILE, (Answered("1s", 0, 1, SECOND_NS),), SECOND_NS, HOSTILE,
        (Lacking(Cause.PROBE_FAILED, 1, 2),),
    )  # fmt: skip
    return made._replace(explanations=(origin,))


@pytest.mark.parametrize("chosen", formats.WRITERS)
def test_no_format_of_an_answer_obeys_a_name(chosen: str) -> None:
    style = Style(Notation.UTC, None, {f"filesystem/used@{HOSTILE}": HOSTILE})
    text = harmless(b"".join(formats.WRITERS[chosen](hostile_result(), style)), tabs=chosen == "tsv")
    assert "forged: x" in text
    if chosen in {"csv", "tsv"}:
        assert text.count("\n") == 7  # a gap, an event, units, names, three rows
        assert r"a\x1b]0;T\x07\x1b[41m\x7f" in text
    if chosen == "tsv":
        assert [line.count("\t") for line in text.splitlines()] == [0, 0, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("chosen", rows.WRITERS)
def test_no_format_of_rows_obeys_a_name(chosen: str) -> None:
    entries: list[Entry | LongEntry] = [
        Entry(f"filesystem/used@{HOSTILE}", "B", Semantics.GAUGE, HOSTILE, 0, SECOND_NS, SECOND_NS),
        LongEntry(HOSTILE, HOSTILE, HOSTILE, 0, SECOND_NS, SECOND_NS, Sensitivity.PUBLIC),
    ]
    tabs = chosen == "tsv"
    harmless(b"".join(listing.write(chosen, entries, Style(Notation.UTC))), tabs=tabs)
    text = harmless(b"".join(rows.WRITERS[chosen]([HOSTILE], [[HOSTILE], ["\t"], [None], [""]])), tabs=tabs)
    if chosen in {"csv", "tsv"}:
        assert text.splitlines()[2:] == [r"\t", "", '""']


@pytest.mark.parametrize("chosen", explaining.WRITERS)
def test_no_explanation_obeys_a_name(chosen: str) -> None:
    harmless(b"".join(explaining.WRITERS[chosen](hostile_result().explanations, Style())))


@pytest.fixture
def recorded(tmp_path: Path) -> Folders:
    """An archive with a hostile disk and a hostile mark, and a file of a hostile name that is damaged."""
    machine = Machine(tmp_path)
    writer = machine.start(0.5)
    writer.tick(range(1, 60), (HOSTILE.replace("\udc9b", ""),))
    writer.ring.event(30 * SECOND_NS, "mark", "", HOSTILE)
    machine.seal()
    machine.flush()
    [whole] = machine.files()
    name = whole.name.replace("sampler", HOSTILE) if "sampler" in whole.name else f"{HOSTILE}-{whole.name}"
    (whole.parent / name).write_bytes(whole.read_bytes()[:3000])
    return machine.folders


@pytest.mark.parametrize("what", [["*"], ["--list", "*/*"], ["--explain", "disk"]])
@pytest.mark.parametrize("chosen", ["csv", "tsv", "json", "jsonl", "kv", "table"])
def test_an_extract_of_hostile_names_is_only_text(recorded: Folders, what: list[str], chosen: str) -> None:
    if chosen in {"csv", "tsv", "kv"} and "--explain" in what:
        pytest.skip("an explanation has no such format")
    printed = run("sysmon_tools.extract", *what, f"--format={chosen}", *where(recorded))
    assert printed.code in {0, 3}, printed.err
    assert r"a\x1b]0;T" in printed.out or "a\\u001b]0;T" in printed.out
    if what == ["*"] and chosen in {"csv", "tsv", "table"}:
        [mark] = [line for line in printed.out.splitlines() if line.startswith("# event") and " mark " in line]
        assert r"\x1b]0;T" in mark
        assert r"\r\nforged" in mark


def test_warnings_and_refusals_of_an_extract_are_only_text(recorded: Folders, tmp_path: Path) -> None:
    folder = Path(recorded.state, "public", "1s")
    hostile = tmp_path / HOSTILE
    hostile.mkdir()
    moved = hostile / "state"
    Path(recorded.state).rename(moved)
    [whole] = [path for path in (moved / folder.relative_to(recorded.state)).glob("*.h5") if path.stat().st_size > 3000]
    whole.write_bytes(whole.read_bytes()[:-100])
    printed = run("sysmon_tools.extract", "--state-dir", str(moved), "--runtime-dir", recorded.runtime)
    assert "warning: " in printed.err or printed.code == 1
    assert r"a\x1b]0;T" in printed.err
    for wrong in ("--from", "--format", "--stat", "--sample"):
        printed = run("sysmon_tools.extract", f"{wrong}={HOSTILE}".replace("\udc9b", ""), "--state-dir", str(moved))
        assert (printed.code, printed.out, printed.err.count("\n")) == (2, "", 1), (wrong, printed)


# --- what looks after an archive ------------------------------------------------------------------


def test_fsck_names_hostile_files_in_one_line_each(recorded: Folders) -> None:
    for words in (["fsck"], ["fsck", "--json"]):
        printed = run("sysmond.__main__", *where(recorded), *words)
        assert r"a\x1b]0;T" in printed.out or "a\\u001b]0;T" in printed.out
        assert printed.err == ""
    *lines, last = run("sysmond.__main__", *where(recorded), "fsck").out.splitlines()
    assert " read, " in last
    assert all(line.startswith(recorded.state) for line in lines), lines


def test_pins_and_their_refusals_are_only_text(tmp_path: Path) -> None:
    from sysmond.store import pins  # noqa: PLC0415

    folders = Folders(str(tmp_path / "state"), str(tmp_path / "run"))
    for folder in folders:
        Path(folder).mkdir()
    pins.add(folders.state, [pins.Pin(SECOND_NS, 2 * SECOND_NS, HOSTILE, HOSTILE)])
    for words in ([], ["--json"]):
        printed = run("sysmond.__main__", *where(folders), "pins", *words)
        assert (printed.code, printed.out.count("\n"), printed.err) == (0, 1, "")
    odd = HOSTILE.replace("\udc9b", "")
    for words in (["pin", odd, "now"], ["unpin", odd], [odd], [f"--{odd}"], ["mark", odd], ["flush"], ["reload"]):
        told = run("sysmond.__main__", "--state-dir", str(tmp_path / odd), "--runtime-dir", str(tmp_path / odd), *words)
        assert (told.code, told.out, told.err.count("\n")) in {(1, "", 1), (2, "", 1)}, (words, told)


# --- configurations and plugins -------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({HOSTILE.replace("\udc9b", ""): 1}),
        '"\\e]0;P\\a\\e[41m": 1',
        'probes: {"\\e]0;P\\a": {interval: 1s}}',
        'probes: {cpu: {options: {"\\e]0;P\\a": 1}}}',
        'probes: {cpu: {interval: "\\e]0;P\\a\\r\\nforged: x"}}',
        'probes: {cpu: {"\\x9b31m": 1}}',
        "probes: {cpu: !<\\e]0;P\\a> {}}",
        "probes: !<tag:%1B]0;P%07> {}",
        "a\x1b[41m: 1",
        "a\x7f: 1",
        "a\u202e: 1",
        "*\u202eanchor",
        "&\u009banchor 1",
        "%YAML \x1b[41m",
        "%\u202e x\n---\n",
    ],
)  # fmt: skip
def test_errors_of_the_configuration_are_only_text(tmp_path: Path, content: str) -> None:
    file = tmp_path / f"{HOSTILE}.yaml"
    file.write_text(content, encoding="utf-8")
    printed = run(
        "sysmond.plan.resolver", "--config", os.fsdecode(os.fsencode(file)), "--output", str(tmp_path / "plan")
    )
    assert (printed.code, printed.out, printed.err.count("\n")) == (2, "", 1), printed


def test_refused_plugins_are_only_text(tmp_path: Path) -> None:
    probes = tmp_path / "home" / "sysmond" / "probes"
    probes.mkdir(parents=True)
    (probes / f"{HOSTILE}.py").write_text("1/0\n", encoding="utf-8")
    (probes / "speaks.py").write_text(f"raise ValueError({HOSTILE!a})\n", encoding="utf-8")
    command = [sys.executable, "-P", "-m", "sysmond.plan.resolver", "--user", "--output", str(tmp_path / "plan")]
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, check=False, timeout=HANG_S, env=environ)
    said = harmless(done.stderr)
    assert done.returncode == 0, said
    assert said.count("refused: ") == said.count("\n") == 2


# --- the one place --------------------------------------------------------------------------------


def test_what_is_printable_stays_and_all_else_can_be_told() -> None:
    plain = r"café back\slash 'quoted' \x1b 木 🙂 | =1+1"
    assert printable(plain) == plain
    assert printable("\n\r\t\x1b\x7f\x9b\u202e\u2028\udc9b\U000e0001") == (
        r"\n\r\t\x1b\x7f\u009b\u202e\u2028\x9b\U000e0001"
    )
    shown = [escape(chr(number)) for number in range(0x110000)]
    assert all(map(str.isprintable, shown))
    odd = [each for number, each in enumerate(shown) if each != chr(number)]
    assert len(set(odd)) == len(odd), "two characters have one escape"


def test_what_is_said_is_one_line_and_never_harms_who_says_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    say(HOSTILE, "sampler")
    say(HOSTILE, "")
    put(HOSTILE, "")
    out, err = capsys.readouterr()
    assert err == f"sampler: {printable(HOSTILE)}\n{printable(HOSTILE)}\n"
    assert out == f"{printable(HOSTILE)}\n\n"
    reading, writing = os.pipe()
    say(HOSTILE, "sampler", writing)
    assert os.read(reading, 65536).decode() == f"sampler: {printable(HOSTILE)}\n"
    os.close(reading)
    say("nobody reads", "sampler", writing)
    os.close(writing)
    say("nobody is there", "sampler", writing)
    for gone in (None, open(os.devnull, "w", encoding="ascii")):  # noqa: SIM115  closed in the next line
        if gone is not None:
            gone.close()
        monkeypatch.setattr(sys, "stderr", gone)
        say("closed")
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(Error, match="standard output is closed"):
        put("nobody is there")


def test_what_an_encoding_lacks_is_an_escape_and_no_traceback() -> None:
    main = "from sysmond.base.terminal import put, say; put('8 – 9'); say('8 – 9')"
    environ = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-P", "-c", main], capture_output=True, check=True, env=environ)
    assert (done.stdout, done.stderr) == (b"8 \\u2013 9\n", b"sysmond: 8 \\u2013 9\n")


def test_what_parts_said_meanwhile_is_only_text(tmp_path: Path) -> None:
    """The live view shows their messages at its end: a plugin, or a library, may have written anything there."""
    messages = tmp_path / "messages"
    messages.write_bytes(b"sampler: \x1b]0;T\x07\xff\nlibrary: \x9b31m\rforged: x\n")
    main = (
        "import os; from sysmond.daemon.live_view import LiveView, Terminal\n"
        "from sysmond.machine.folders import Folders\n"
        "view = LiveView.__new__(LiveView); view._terminal = Terminal([], os.dup(2)); view._before = {}\n"
        f"os.dup2(os.open({str(messages)!r}, os.O_RDWR), 2)\n"
        "view._folders = Folders('/nowhere', '/nowhere'); view._conclude()"
    )
    done = subprocess.run([sys.executable, "-P", "-c", main], capture_output=True, check=True)
    assert r"sampler: \x1b]0;T\x07\xff" in harmless(done.stderr)


@pytest.mark.parametrize(
    "program", ["sysmond.entry", "sysmond.daemon.runner", "sysmond.plan.resolver", "sysmond.tasks.bpf.loader"]
)
def test_what_nobody_expected_is_told_and_only_text(program: str) -> None:
    """An exception cites names and contents; its traceback is one all the same."""
    starts = {
        "sysmond.entry": "sys.modules['sysmon_tools.extract'] = program; sys.exit(sysmond.entry.sysmon_extract())"
    }
    main = (
        "import runpy, sys, types, sysmond.entry, sysmond.base.terminal\n"
        f"def main():\n    try:\n        raise ValueError({HOSTILE!a})\n"
        f"    except ValueError as wrong:\n        raise OSError(1, {HOSTILE!a}, {HOSTILE!a}) from wrong\n"
        "program = types.SimpleNamespace(main=main)\n"
    )
    if program in starts:
        main += starts[program]
    else:  # As ``python -m`` begins it, but that its main fails.
        main += (
            "import ast, importlib.util\n"
            f"path = importlib.util.find_spec({program!r}).origin\n"
            "whole = ast.parse(open(path).read())\n"
            "whole.body = [each for each in whole.body if getattr(each, 'name', '') != 'main']\n"
            "exec(compile(whole, path, 'exec'), {'__name__': '__main__', '__file__': path, 'main': main})\n"
        )
    done = subprocess.run([sys.executable, "-P", "-c", main], capture_output=True, check=False, timeout=HANG_S)
    said = harmless(done.stderr)
    assert done.returncode == 1
    assert said.count("Traceback (most recent call last):\n") == 2
    assert r"ValueError: a\x1b]0;T\x07" in said
    assert "PermissionError: " in said.splitlines()[-1]


def test_what_libraries_log_is_said_as_one_line_and_only_text() -> None:
    """Asyncio and the D-Bus library log what strangers sent."""
    from sysmond.bus.loop import _Log  # noqa: PLC0415

    said: list[str] = []
    log = logging.getLogger("dbus_fast.of_a_test")
    log.propagate = False
    log.addHandler(_Log(lambda line: said.append(printable(line))))
    log.info("not worth it")
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.exception("A message handler raised: %s", HOSTILE)
    [line] = said
    assert line.startswith(f"A message handler raised: {printable(HOSTILE)}")
    assert line.isprintable()
