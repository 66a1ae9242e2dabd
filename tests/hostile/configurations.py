# SPDX-License-Identifier: Apache-2.0
"""Configurations that somebody made up: each is taken for what it says, or refused in one line that people can read.

Whoever may write one decides what is recorded; but by a slip, or by a file that was meant for something else, nobody
shall have a recorder that does not start, takes all memory, or says something to a terminal that it obeys. So each file
is given to the resolver itself: exit code 2 and one line with the file's name, or 0 and a plan, in time and within
memory; and where it is refused, the plan of before stays as it was.

    python -P tests/hostile/configurations.py          (tries all, and tells)
"""

import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from sysmond.plan import plan, resolver
from sysmond.plan.config import FILE_BYTES_MAX, FILES_MAX, NESTING_MAX, NODES_MAX
from tests.faults.trial import Totals
from tests.support.memory import counted_bytes, resident_bytes

SECONDS_MAX = 10.0
MEMORY_BYTES = 300 << 20
# Only so that the machine lives on where a bound is broken.
_DATA_BYTES = 1 << 30
LINE_LENGTH_MAX = 600
RIGHT = "sampler: {priority: 1}\n"
REFUSED = 2
# What is written with a plan.
_BESIDE = ("answers.json", "catalogue.json", "lacking.json", "plan-options.json")


class Case(NamedTuple):
    """What lies where a configuration is looked for. ``make``: puts it there; ``is_right``: it has to be taken."""

    make: Callable[[Path], object]
    is_right: bool = False


def file(content: bytes | str, *, is_right: bool = False) -> Case:
    """One file of this content."""
    whole = content.encode() if isinstance(content, str) else content
    return Case(lambda path: path.write_bytes(whole), is_right)


def drop_ins(names: dict[str, str], *, is_right: bool = False) -> Case:
    """A right file, and a folder of others beside it."""

    def make(path: Path) -> None:
        path.write_text(RIGHT, encoding="utf-8")
        folder = Path(f"{path}.d")
        folder.mkdir()
        for name, content in names.items():
            (folder / name).write_text(content, encoding="utf-8")

    return Case(make, is_right)


def whole(piece: str, before: str = "", after: str = "") -> bytes:
    """A piece again and again, as often as a file has room for it."""
    room = FILE_BYTES_MAX - len(before.encode()) - len(after.encode())
    return (before + piece * (room // len(piece.encode())) + after).encode()


def nested(levels: int) -> str:
    return "".join(f"{'  ' * level}a:\n" for level in range(levels))


def cases() -> dict[str, Case]:
    """Every case by its name."""
    kinds = (laughs, references, tags, numbers, twice, shapes, escapes, huge, strange)
    return {name: case for kind in kinds for name, case in kind().items()}


def laughs() -> dict[str, Case]:
    """Few bytes that mean many."""
    levels = "".join(f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 10)}]\n" for level in range(1, 20))
    merges = "".join(f"m{level}: &m{level}\n  <<: [*m{level - 1}, *m{level - 1}]\n" for level in range(1, 30))
    return {
        "a billion laughs": file(f"l0: &l0 [lol]\n{levels}"),
        "a billion laughs in one line": file("probes: [&a [x], &b [*a, *a], &c [*b, *b], &d [*c, *c]]"),
        "merges of merges": file(f"m0: &m0 {{a: 1}}\n{merges}"),
        "a merge of nothing": file("probes: {<<: {cpu: {enabled: false}}}"),
        "a merge of itself": file("probes: &p\n  <<: *p\n"),
        "one value for all": file("probes: {cpu: &c {enabled: true}, disk: *c}"),
    }


def references() -> dict[str, Case]:
    """Names of values, and what goes in circles."""
    return {
        "a section within itself": file("&a {probes: *a}"),
        "a list within itself": file("probes: &a [*a]"),
        "a key that is its own value": file("? &a b\n: *a"),
        "an alias of nothing": file("probes: *nothing"),
        "an alias alone": file("*a"),
        "an anchor twice": file("sampler: {priority: &a 1}\narchive: {pin_pressure_percent: &a 5}"),
        "an anchor without a name": file("& 1"),
        "only anchors": file(whole("&a ")),
        "an anchor of a hostile name": file("probes: *\u202e\u2066"),
    }


def tags() -> dict[str, Case]:
    """What a loader that obeys tags would run, make or take for something else."""
    return {
        "runs a program": file("!!python/object/apply:os.system ['touch owned']"),
        "runs a program as a value": file("probes: !!python/object/apply:subprocess.check_output [[id]]"),
        "runs a program as a key": file("? !!python/object/apply:os.system ['id']\n: 1"),
        "makes an object": file("probes: !!python/object/new:object []"),
        "imports a module": file("probes: {cpu: !!python/module:antigravity ''}"),
        "names a function": file("sampler: {priority: !!python/name:os.abort ''}"),
        "bytes": file("sampler: {priority: !!binary MQ==}"),
        "a set": file("probes: !!set {cpu, disk}"),
        "an ordered section": file("probes: !!omap [cpu: {}]"),
        "a time": file("sampler: {priority: 2001-12-14t21:59:43.10-05:00}"),
        "a number that says it is a text": file("sampler: {priority: !!str 1}", is_right=True),
        "a text that says it is a number": file("sampler: {priority: !!int one}"),
        "a tag of our own": file("probes: !sysmond {cpu: {}}"),
        "a tag that is an escape": file("probes: !<\\e]0;P\\a> {}"),
        "a tag with coded escapes": file("probes: !<tag:%1B]0;P%07%9B31m> {}"),
        "a tag without an end": file("probes: !<tag: {}"),
        "a tag of a handle that nobody said": file("probes: !h!tag {}"),
        "a handle said again and again": file(whole("%TAG ! x\n")),
    }


def numbers() -> dict[str, Case]:
    """Numbers that are none, or none that fit."""
    digits = "9" * 100_000
    spelled = {
        "a whole number of 100,000 digits": digits,
        "a negative one": f"-{digits}",
        "one in hexadecimal": f"0x{digits}",
        "one in octal": f"0o{'7' * 100_000}",
        "one in the base of sixty": f"1:{'59:' * 30_000}59",
        "one with 100,000 underscores": f"1{'_' * 100_000}1",
        "a fraction of 100,000 digits": f"0.{digits}",
        "an exponent": "1e999999999",
        "no number": ".nan",
        "more than any number": ".inf",
        "less than none": "-1",
        "digits of another script": "١٢",
        "a digit above": "²",
        "a number and a NUL": '"1\\0"',
        "a number and the end of a line": '"1\\n"',
    }
    return {name: file(f"sampler: {{priority: {text}}}") for name, text in spelled.items()} | {
        "a duration of 100,000 digits": file(f"archive: {{seal_interval: {digits}s}}"),
        "a duration of many parts": file(whole("1s", "archive: {seal_interval: ", "}")),
        "a size of 100,000 digits": file(f"archive: {{ram_size: {digits}MiB}}"),
        "a size of nothing": file("archive: {ram_size: MiB}"),
        "a version out of range": file(f"%YAML {digits}.1\n---\n{RIGHT}"),
        "a line of 100,000 digits": file(f"{digits}: 1"),
    }


def twice() -> dict[str, Case]:
    """What is said twice."""
    return {
        "a section twice": file("probes: {}\nprobes: {}"),
        "a value twice": file("sampler: {priority: 1, priority: 2}"),
        "a value twice, quoted": file("sampler: {priority: 1, 'priority': 1}"),
        "a probe twice": file("probes: {cpu: {enabled: true}, cpu: {enabled: false}}"),
        "a hostile name twice": file('probes: {"\\e]0;P\\a": {}, "\\e]0;P\\a": {}}'),
        "a section as often as a file has room": file(whole("archive: {}\n")),
        "two documents": file(f"{RIGHT}---\n{RIGHT}"),
        "as many documents as a file has room for": file(whole("---\n")),
    }


def shapes() -> dict[str, Case]:
    """Right words in wrong places, and depths."""
    return {
        "nothing": file(b"", is_right=True),
        "only a mark of the byte order": file(b"\xef\xbb\xbf", is_right=True),
        "a list": file("[]"),
        "a text": file("x"),
        "a section as a value": file("sampler: {priority: {}}"),
        "a value as a section": file("sampler: 1"),
        "a list as a section": file("probes: [cpu]"),
        "no value": file("sampler: {priority: }"),
        "a section as a key": file("{a: 1}: 1"),
        "a list as a key": file("? [a, b]\n: 1"),
        "no key": file("? \n: 1"),
        "an empty key": file('"": 1'),
        "a key that nobody knows": file("sampler: {prority: 1}"),
        "a probe that nobody knows": file("probes: {cpuu: {enabled: true}}"),
        "an option that nobody knows": file("probes: {cpu: {options: {x: 1}}}"),
        "deep in lines": file(nested(NESTING_MAX + 1)),
        "deep in braces": file(whole("{a: ")),
        "deep in brackets": file(whole("[")),
        "deep in dashes": file(whole("- ")),
        "deep in questions": file(whole("? ")),
        "brackets without a begin": file(whole("]")),
        "a quote without an end": file(whole("x", 'probes: "')),
        "a tab for spaces": file("sampler:\n\tpriority: 1"),
        "only colons": file(whole(":")),
        "only exclamation marks": file(whole("!")),
        "a directive that nobody knows": file("%x\n---\n", is_right=True),
    }


def escapes() -> dict[str, Case]:
    """What a terminal would obey, in every place that a message may show, and what is no text."""
    title = "\\e]0;P\\a\\x9b31m\\u202e\\r\\nforged: x\\u2028"
    places = {
        "a key": f'"{title}": 1',
        "the name of a probe": f'probes: {{"{title}": {{interval: 1s}}}}',
        "the name of an option": f'probes: {{cpu: {{options: {{"{title}": 1}}}}}}',
        "the key of a probe": f'probes: {{cpu: {{"{title}": 1}}}}',
        "a value": f'probes: {{cpu: {{interval: "{title}"}}}}',
        "a lane": f'probes: {{cpu: {{lane: "{title}"}}}}',
        "an option": f'probes: {{command: {{options: {{mask: "{title}"}}}}}}',
        "a section": f'sampler: "{title}"',
    }
    raw = {"ESC": "\x1b[41m", "DEL": "\x7f", "a control of eight bits": "\x9b31m", "a line turned round": "\u202eab",
           "an end of a line": "a\u2028b", "no character": "\ufffe", "NUL": "\0", "a form feed": "\x0c"}  # fmt: skip
    return {
        **{f"escapes in {where}": file(content) for where, content in places.items()},
        **{f"{what} as it is": file(f"{sign}: 1") for what, sign in raw.items()},
        **{f"{what} as it is, quoted": file(f'"{sign}": 1') for what, sign in raw.items()},
        "an escape beyond Unicode": file('"\\UFFFFFFFF": 1'),
        "half a pair of an escape": file('"\\ud800": 1'),
        "an escape without digits": file('"\\x": 1'),
        "no UTF-8": file(b"sampler: {priority: \xff}"),
        "UTF-16": file("sampler: {priority: 1}".encode("utf-16")),
        "UTF-32": file("sampler: {priority: 1}".encode("utf-32")),
        "surrogates as bytes": file(b"sampler: \xed\xa0\x80"),
        "a program": file(b"\x7fELF\x02\x01\x01" + bytes(1000)),
        "noise": file(random.Random(1).randbytes(FILE_BYTES_MAX)),
    }


def huge() -> dict[str, Case]:
    """As large as a file may be, and larger."""
    return {
        "one byte too many": file(whole("#") + b"#"),
        "only spaces": file(whole(" "), is_right=True),
        "only ends of lines": file(whole("\n"), is_right=True),
        "only comments": file(whole("#\n"), is_right=True),
        "a comment without an end": file(whole("#"), is_right=True),
        "a long key": file(whole("x", "? ", "\n: 1")),
        "a long key of a probe": file(whole("x", "probes: {cpu: {? ", " : 1}}")),
        "a long name of a probe": file(whole("x", "probes: {? ", " : {}}")),
        "a long name of an option": file(whole("x", "probes: {cpu: {options: {? ", " : 1}}}")),
        "a long interval": file(f"probes: {{cpu: {{interval: {'0.1ms' * 800}}}}}", is_right=True),
        "a long interval that is too short": file(whole("0s", "probes: {cpu: {interval: 1ms", "}}")),
        "a long interval of a table in the background": file(f"probes: {{command: {{interval: 10ms{'0s' * 2000}}}}}"),
        "a long size that holds no file": file(f"tiers: {{pins: {{size: '1{' ' * 4000}MB'}}}}"),
        "a long option": file(whole("x", "probes: {command: {options: {mask: ", "}}}")),
        "a long value": file(whole("x", "sampler: {priority: ", "}")),
        "a long text in lines": file(whole("x\n ", "sampler: ")),
        "a long text of escapes": file(whole("\\x1b", 'sampler: "', '"')),
        "a folded text": file(whole(" x\n\n", "sampler: >\n")),
        "more values than a configuration has": file(
            "probes:\n" + "".join(f"  a{number}: {{}}\n" for number in range(NODES_MAX))
        ),
        "as many keys without a value as a file has room for": file(whole("?,", "{", "}")),
        "as many sections as a file has room for": file(whole("{},", "probes: [", "]")),
        "as many lists as a file has room for": file(whole("[],", "probes: [", "]")),
        "as many options as a file has room for": file(
            "probes: {cpu: {options: {" + ",".join(f"a{number}: 1" for number in range(20_000)) + "}}}"
        ),
    }


def strange() -> dict[str, Case]:
    """What is no file, and folders that are not as one thinks."""
    return {
        "no file": Case(lambda path: None),
        "a folder": Case(lambda path: path.mkdir()),
        "a link to itself": Case(lambda path: path.symlink_to(path.name)),
        "a link to nowhere": Case(lambda path: path.symlink_to("nowhere")),
        "a device without an end": Case(lambda path: path.symlink_to("/dev/zero")),
        "a device of nothing": Case(lambda path: path.symlink_to("/dev/null"), is_right=True),
        "larger than the disk": Case(_sparse),
        "the memory of a process": Case(lambda path: path.symlink_to("/proc/self/mem")),
        "a folder of files that is a file": Case(_file_for_folder),
        "too many files": drop_ins({f"{number:03}.yaml": "" for number in range(FILES_MAX + 1)}),
        "as many files as may be": drop_ins({f"{number:03}.yaml": RIGHT for number in range(FILES_MAX)}, is_right=True),
        "a file of a hostile name": drop_ins({"\x1b]0;P\x07\r\nforged: x\u202e.yaml": "x: 1"}),
        "hidden files and others": drop_ins({".a.yaml": "x", "a.yaml~": "x", "a.yml": "x"}, is_right=True),
        "a folder that is called like a file": Case(_folder_among_files),
    }


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


def _file_for_folder(path: Path) -> None:
    path.write_text(RIGHT, encoding="utf-8")
    Path(f"{path}.d").touch()


def _folder_among_files(path: Path) -> None:
    path.write_text(RIGHT, encoding="utf-8")
    Path(f"{path}.d", "a.yaml").mkdir(parents=True)


def run(rounds: int, seed: int) -> Totals:
    """Try them; ``rounds``: how many of them, 0 for all."""
    names = list(cases())
    if rounds:
        names = random.Random(seed).sample(names, min(rounds, len(names)))
    return {"problems": list(tried(names)), "configurations": len(names)}


def tried(names: Iterable[str]) -> Iterator[str]:
    """Try these, and give what is wrong."""
    there = cases()
    with tempfile.TemporaryDirectory(prefix="sysmond-configurations-") as base:
        before = Path(base, "before.json")
        path = Path(base, "right.yaml")
        path.write_text(RIGHT, encoding="utf-8")
        # Here, so that each child has the plugins loaded.
        if resolver.main(["--config", str(path), "--output", str(before)]):
            raise RuntimeError("a right configuration was refused")
        for number, name in enumerate(names):
            folder = Path(base, str(number))
            folder.mkdir()
            for problem in attempt(there[name], folder, before.read_bytes()):
                yield f"{name}: {problem}"


def attempt(case: Case, folder: Path, before: bytes) -> Iterator[str]:
    """What is wrong when the resolver is given it; ``before``: the plan there is already."""
    path, output = folder / "sysmond.yaml", folder / "plan.json"
    case.make(path)
    output.write_bytes(before)
    began_s = time.monotonic()
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            _resolve(["--config", str(path), "--output", str(output)], said.fileno())
        _, status, used = os.wait4(child, 0)
        said.seek(0)
        lines = said.read().decode("utf-8", "surrogateescape").split("\n")[:-1]
    code, seconds = os.waitstatus_to_exitcode(status), time.monotonic() - began_s
    if code == -signal.SIGALRM:
        yield f"not done within {SECONDS_MAX:.0f} s"
        return
    if used.ru_maxrss << 10 > resident_bytes() + MEMORY_BYTES:
        yield f"took {used.ru_maxrss >> 10} MiB, in {seconds:.1f} s"
    if code not in {0, REFUSED} or (code == 0) is not case.is_right:
        yield f"exit code {code}, after {lines}"
    elif code == 0:
        expected = [f"sysmond: {remark}" for remark in plan.remarks(plan.decode(output.read_bytes()))]
        if lines != expected:
            yield f"taken, and says {lines}, not {expected}"
    else:
        yield from _refused(lines, str(path))
        if output.read_bytes() != before:
            yield "refused, and yet the plan is another"
    if left := {each.name for each in folder.iterdir()} - {path.name, f"{path.name}.d", output.name, *_BESIDE}:
        yield f"leaves {sorted(left)}"


def _refused(lines: list[str], path: str) -> Iterator[str]:
    """What is wrong with how it is refused."""
    if len(lines) != 1:
        yield f"{len(lines)} lines: {lines[:3]}"
        return
    [line] = lines
    if not line.isprintable():
        yield f"a line that a terminal may obey: {line!r:.300}"
    if not line.startswith(f"sysmond: {path}"):
        yield f"does not name the file: {line:.300}"
    if len(line) > LINE_LENGTH_MAX:
        yield f"a line of {len(line)} characters"


def _resolve(words: list[str], said: int) -> None:
    """Be the resolver; never returns."""
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX)
        most_bytes = counted_bytes() + _DATA_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115  pytest's before
        os.chdir(os.path.dirname(words[1]))
        code = resolver.main(words)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as failure:  # noqa: BLE001  the parent tells of it
        with suppress(OSError):
            os.write(said, f"{type(failure).__name__}: {failure}\n".encode("utf-8", "backslashreplace")[:2000])
    finally:
        os._exit(code)


if __name__ == "__main__":
    found = run(0, 1)
    print(json.dumps(found, indent=1))
    sys.exit(1 if found["problems"] else 0)
