# SPDX-License-Identifier: Apache-2.0
"""The choice of a way to go over all tasks, and the passes that several tables share."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from sysmond_probes import process

from sysmond.base.model import Sensitivity, Table
from sysmond.plan.plugins import check_probe, load
from sysmond.probe import Host, Option, Probe, Records
from sysmond.records import record_bytes
from sysmond.tasks import passes
from sysmond.tasks.bpf import loader
from sysmond.tasks.choose import open_tasks
from sysmond.tasks.pass_result import PassResult
from sysmond.tasks.passes import Passes, passes_of
from sysmond.tasks.proc import walk
from sysmond.tasks.proc.walk import Proc
from sysmond.tasks.tables import PROCESS, PROCESS_PRIVATE, THREAD
from tests.support import pinned
from tests.support.children import child
from tests.tasks.proc.test_proc import HZ, rows, several, touch


class Counted:
    """A way that says in its rows which pass they are of."""

    def __init__(self) -> None:
        self.asked: list[tuple[bool, bool]] = []
        self.fails = False

    def take(self, *, full: bool, threads: bool) -> PassResult:
        if self.fails:
            raise OSError("no more")
        self.asked.append((full, threads))
        number = len(self.asked)
        records = Records(bytes([number]), full)
        return PassResult(records, records if threads else None, records)

    def close(self) -> None:
        self.asked.append((False, False))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    way = Counted()
    monkeypatch.setattr(passes, "open_tasks", lambda _runtime, _root: (way, "by counting"))
    return way


def test_tables_of_one_tick_share_a_pass(counted: Counted) -> None:
    shared = Passes("", "")
    for tick in range(3):
        found = [shared.records(name, tick, full=False) for name in ("process", "process_private")]
        assert found[0] == found[1]
    assert counted.asked == [(True, False), (False, False), (False, False)]


def test_a_table_that_missed_a_pass_is_given_all(counted: Counted) -> None:
    shared = Passes("", "")
    shared.records("process", 0, full=False)
    shared.records("process", 1, full=False)
    assert not shared.records("process", 2, full=False).full
    assert shared.records("process_private", 2, full=False).full  # For the first time.
    # What changed between the two passes of this tick was told to the other table alone.
    assert shared.records("process", 3, full=False).full
    assert shared.records("process_private", 3, full=False).full
    assert not shared.records("process", 4, full=False).full
    assert not shared.records("process", 5, full=False).full
    assert shared.records("process_private", 5, full=False).full
    assert len(counted.asked) == 8


def test_all_that_one_table_asks_for_is_given_to_the_others_as_well(counted: Counted) -> None:
    shared = Passes("", "")
    for tick in range(2):
        for name in ("process", "process_private"):
            shared.records(name, tick, full=False)
    assert shared.records("process", 2, full=True).full
    assert shared.records("process_private", 2, full=False).full
    assert [full for full, _ in counted.asked] == [True, False, True]


def test_threads_are_read_while_somebody_asks_for_them(counted: Counted) -> None:
    shared = Passes("", "")
    shared.records("process", 0, full=False)
    shared.records("thread", 0, full=False)
    shared.records("process", 1, full=False)
    shared.records("thread", 1, full=False)
    for tick in range(2, 5):
        shared.records("process", tick, full=False)
    threads = [asked for _, asked in counted.asked]
    assert threads == [False, True, True, True, False, False]
    shared.records("process", 5, full=False, threads=True)
    assert counted.asked[-1] == (False, True)


def test_a_way_that_fails_is_opened_anew(counted: Counted) -> None:
    shared = Passes("", "")
    shared.records("process", 0, full=False)
    counted.fails = True
    with pytest.raises(OSError, match="no more"):
        shared.records("process", 1, full=False)
    counted.fails = False
    assert shared.records("process", 1, full=False).full


def test_where_the_loader_has_not_run_proc_is_read(tmp_path: Path) -> None:
    tasks, way = open_tasks(str(tmp_path))
    assert isinstance(tasks, Proc)
    assert way == "by /proc; not by BPF: the BPF loader has not run"
    tasks.close()


@pytest.mark.parametrize(
    ("report", "right"),
    [
        (b"{", "bpf.json: not JSON"),
        (b"[]", "a list is not an object"),
        (b"{}", "names no folder"),
        (b'{"folder": "/nowhere", "programs": {"snapshot": {"refused": "no BTF"}}}', "by BPF: snapshot: no BTF"),
        (b'{"folder": "/nowhere"}', "/nowhere"),
    ],
)
def test_why_not_by_bpf_is_said_in_one_line(tmp_path: Path, report: bytes, right: str) -> None:
    (tmp_path / "bpf.json").write_bytes(report)
    tasks, way = open_tasks(str(tmp_path))
    tasks.close()
    assert way.startswith("by /proc; not by BPF: ")
    assert right in way
    assert "\n" not in way


def test_of_a_machine_that_does_not_run_bpf_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "bpf.json").write_text(json.dumps({"folder": "/sys/fs/bpf/any"}))
    tasks, way = open_tasks(str(tmp_path), str(tmp_path))
    tasks.close()
    assert f"BPF sees only the running machine, not {tmp_path}" in way


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    machine = Host()
    machine.runtime = str(tmp_path)
    machine.new_tick()
    yield machine
    passes_of(machine).close()
    machine.close()


def test_the_probes_of_processes_share_the_passes_of_their_host(host: Host) -> None:
    probes = {probe.table.name: probe for probe in load("sysmond_probes.process")}
    assert list(probes) == ["process", "thread", "process_private"]
    assert probes["process_private"].sensitivity is Sensitivity.RESTRICTED
    for name, table in (("process", PROCESS), ("thread", THREAD), ("process_private", PROCESS_PRIVATE)):
        read = probes[name].records
        assert read is not None
        found = read(host, full=True, **({"threads": True} if name == "process" else {}))
        assert isinstance(found, Records)
        assert found.full
        assert len(found.rows) % record_bytes(table) == 0
        assert len(found.rows) // record_bytes(table) >= 2
    host.new_tick()
    assert not process.process(host, full=False, threads=True).full
    assert passes_of(host).way.startswith("by /proc; ")


TABLE = PROCESS._replace(name="other")


def enabling(option: Option, *names: str) -> list[Probe]:
    first = Probe(TABLE, records=lambda _host, _full, **_options: Records(b""), options=(option,))
    return [first, *(first._replace(table=TABLE._replace(name=name), options=()) for name in names)]


def test_an_option_that_enables_a_table_is_true_or_false() -> None:
    check_probe(enabling(Option("more", default=False, doc="More.", enables="thread"))[0])
    with pytest.raises(Exception, match="option 'more': enables 'thread'; expected an option that is true or false"):
        check_probe(enabling(Option("more", default=3, doc="More.", enables="thread"))[0])


PLUGIN = """
from sysmond.probe import Option, Probe, Table, gauge, hookimpl

@hookimpl
def sysmond_probes():
    def read(host, **options):
        return ()
    def table(name):
        return Table(name, (gauge("one", "1", "One."),))
    more = Option("more", False, "More.", enables="second")
    return [Probe(table("first"), read, options=(more,)), Probe(table("OTHER"), read, enabled=False)]
"""


def test_an_option_enables_a_table_of_the_same_plugin(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(PLUGIN.replace("OTHER", "second"))
    assert load(str(tmp_path / "good.py"))[0].options[0].enables == "second"
    (tmp_path / "bad.py").write_text(PLUGIN.replace("OTHER", "third"))
    with pytest.raises(Exception, match="table 'first', option 'more': enables 'second'; expected third"):
        load(str(tmp_path / "bad.py"))


def check_alike(table: Table, taken: Sequence[Records | None], pids: set[int]) -> int:
    """Compare what both ways tell of processes at rest; give how many records there are."""
    by_bpf, by_proc = (rows(table, each) for each in taken)
    tasks = [key for key, row in by_bpf.items() if row["pid"] in pids]
    for task in tasks:
        seen, told = by_bpf[task], by_proc[task]
        # Times in user mode and in the kernel are scaled by /proc alone; it has whole ticks of beginnings.
        assert 0 <= seen.pop("start") - told.pop("start") < 10**9 // HZ
        for name in ("user", "system", "block_delay"):
            del seen[name], told[name]
        for name in ("cpu", "run_delay"):  # Each thread's microseconds are rounded by one of them.
            assert abs(seen.pop(name) - told.pop(name)) <= 4
        assert seen == told
    return len(tasks)


def test_both_ways_tell_the_same_of_processes_at_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if why := pinned.why_not():
        pytest.skip(why)
    monkeypatch.setattr(walk, "YOUNG_NS", 0)
    with pinned.loaded(tmp_path, threads=True), child(touch) as one, child(several) as other:
        ways = open_tasks(str(tmp_path))[0], Proc()
        taken = [way.take(full=True, threads=True) for way in ways]
        assert check_alike(PROCESS, [each.process for each in taken], {one, other}) == 2
        assert check_alike(THREAD, [each.thread for each in taken], {one, other}) == 5
        taken.clear()  # Rows of BPF are those of the mapping.
        for way in ways:
            way.close()


def test_bpf_is_gone_over_to_once_the_loader_has_run(tmp_path: Path) -> None:
    if why := pinned.why_not():
        pytest.skip(why)
    shared = Passes(str(tmp_path), "")
    shared.records("process", 0, full=False)
    assert shared.way.startswith("by /proc; ")
    with pinned.loaded(tmp_path):
        assert shared.records("process", 1, full=True).full
        assert shared.way.startswith("by BPF, ")
        assert shared.records("process_private", 1, full=True).walked > 1
        # A change is told once: of two readers each would miss what the other was told.
        other, way = open_tasks(str(tmp_path))
        assert isinstance(other, Proc)
        assert way.endswith("another part of sysmond reads it")
        other.close()
        shared.close()
        other, way = open_tasks(str(tmp_path))
        assert way.startswith("by BPF, ")
        other.close()


def test_what_is_loaded_anew_is_gone_over_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if why := pinned.why_not():
        pytest.skip(why)
    with pinned.loaded(tmp_path):
        shared = Passes(str(tmp_path), "")
        assert shared.records("process", 0, full=True).lost == 0
        monkeypatch.setattr(loader, "PROCESSES_MAX", 1)
        loader.load(loader.LoadRequest(str(tmp_path)))
        assert shared.records("process", 1, full=False).lost == 0  # What is open stays until all is read again.
        assert shared.records("process", 2, full=True).lost > 0
        shared.close()
