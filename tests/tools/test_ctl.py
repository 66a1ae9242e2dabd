# SPDX-License-Identifier: Apache-2.0
"""sysmonctl as people and programs use it: against a real recorder on a real bus."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs import generate
from sysmon_tools import command_output, ctl
from sysmon_tools.doctor import examine
from sysmond.bus.wire.names import BUS_NAME, OBJECT_PATH
from sysmond.errors import UsageError
from sysmond.probe import Host
from tests.support import sysfs
from tests.support.onbus import Recorder, a_bus, a_recorder
from tests.support.order import first
from tests.support.waiting import HANG_S, wait_until

pytestmark = pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="no dbus-daemon here")
PROGRAM = [sys.executable, "-P", "-m", "sysmon_tools.ctl"]


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with a_bus() as bus, a_recorder(bus) as recorder:
        wait_until(lambda: metrics(recorder, "load"), recorder.said)
        yield recorder


def ctl_(recorder: Recorder, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, "--bus", recorder.bus.address, "--user", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)


def answer(recorder: Recorder, *words: str) -> Any:
    done = ctl_(recorder, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def said(recorder: Recorder, *words: str) -> str:
    done = ctl_(recorder, *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(recorder: Recorder, *words: str) -> tuple[int, str]:
    done = ctl_(recorder, *words)
    assert done.stdout == ""
    assert done.stderr.startswith("sysmonctl: ")
    assert done.stderr.count("\n") == 1
    return done.returncode, done.stderr


def metrics(recorder: Recorder, table: str) -> list[Any]:
    done = ctl_(recorder, "--json", "list", "metrics")
    listed = json.loads(done.stdout) if done.stdout else []
    return [metric for metric in listed if metric["path"].startswith(f"{table}/")]


def probe(recorder: Recorder, name: str) -> dict[str, Any]:
    return next(probe for probe in answer(recorder, "list", "probes") if probe["name"] == name)


def test_status_names_the_service_and_its_parts(recorder: Recorder) -> None:
    status = answer(recorder, "status")
    assert (status["bus_name"], status["object_path"]) == (BUS_NAME, OBJECT_PATH)
    assert status["state"] == "running"
    assert set(status["pids"]) == {"daemon", "sampler", "background", "archiver", "bus"}
    assert all(os.path.exists(f"/proc/{pid}") for pid in status["pids"].values())
    assert "state    running" in said(recorder, "status")


@pytest.mark.parametrize("what", ctl.LISTS)
def test_whatever_is_listed_is_listed_for_people_and_for_programs(recorder: Recorder, what: str) -> None:
    there = answer(recorder, "list", what)
    assert there or what == "pins"
    lines = said(recorder, "list", what).splitlines()
    assert len(lines) == 1 + len(there)
    assert all(line == line.rstrip() for line in lines)


def test_a_probe_is_disabled_and_enabled(recorder: Recorder) -> None:
    written = f"written to {recorder.configuration}.d/90-sysmonctl.yaml, for every recorder that reads it"
    disabled = said(recorder, "disable", "probe", "load")
    assert disabled == f"load: disabled, every 1s, realtime lane ({written})\n"
    assert probe(recorder, "load")["state"] == "disabled"
    assert "active" in said(recorder, "enable", "probe", "load")
    wait_until(lambda: metrics(recorder, "load"))


def test_an_interval_is_set_and_taken_back(recorder: Recorder) -> None:
    drop_in = f"{recorder.configuration}.d/90-sysmonctl.yaml"
    shown = said(recorder, "set", "probe", "memory", "interval", "5s")
    assert shown == f"probes.memory.interval: 5s (written to {drop_in}, for every recorder that reads it)\n"
    assert probe(recorder, "memory")["interval_ns"] == 5_000_000_000
    settings = {setting["key"]: setting["value"] for setting in answer(recorder, "config")}
    assert settings["probes.memory.interval"] == "5s"
    assert "interval: 5s\n" in Path(f"{recorder.configuration}.d", "90-sysmonctl.yaml").read_text()
    shown = said(recorder, "set", "probe", "memory", "interval", "default")
    assert shown == "probes.memory.interval: 1s (default)\n"


def test_who_asks_for_values_of_processes_is_told_how(recorder: Recorder) -> None:
    right = (
        "is a long table, whose series are not listed; expected 'sysmon-extract {}' by itself, or on D-Bus GetRows, "
        "with last_ns for the newest"
    )
    # Of the thread nothing is recorded: it is disabled.
    for path, table in (("process", "process"), ("exits/signal", "exits"), ("thread", "thread")):
        code, error = refused(recorder, "watch", path, "--count=1")
        assert (code, error) == (2, f"sysmonctl: path {path!r}: {table} {right.format(table)}\n")
    assert "did you mean process" in refused(recorder, "watch", "proces")[1]
    assert (probe(recorder, "process")["state"], probe(recorder, "process")["sensitivity"]) == ("active", "public")
    # A recorder of one's own has no BPF, and by /proc threads are looked at only where that is asked for.
    wait_until(lambda: probe(recorder, "thread_state")["state"] == "absent", recorder.said)
    assert "by_proc" in probe(recorder, "thread_state")["reason"]
    assert {"signal", "peak_rss"} < {metric[0] for metric in answer(recorder, "show", "exits")["Metrics"]}


def test_a_probe_is_shown_with_its_metrics(recorder: Recorder) -> None:
    shown = answer(recorder, "show", "load")
    assert shown["Name"] == "load"
    assert "average_1min" in {metric[0] for metric in shown["Metrics"]}
    assert "metric" in said(recorder, "show", "load")


def test_every_setting_tells_where_it_is_said(recorder: Recorder) -> None:
    recorder.configuration.write_text("archive:\n  seal_interval: 300s\n")
    said(recorder, "reload")
    settings = {setting["key"]: setting for setting in answer(recorder, "config")}
    assert settings["archive.seal_interval"]["value"] == "300s"
    assert settings["archive.seal_interval"]["origin"] == f"{recorder.configuration}:2"
    assert settings["archive.ram_size"]["origin"] == "default"
    changed = {setting["key"]: setting for setting in answer(recorder, "config", "--changed")}
    assert changed == {key: setting for key, setting in settings.items() if setting["origin"] != "default"}


def test_a_wrong_configuration_is_refused_with_its_line(recorder: Recorder) -> None:
    before = recorder.configuration.read_text()
    recorder.configuration.write_text("sampler:\n  priority: high\n")
    code, line = refused(recorder, "reload")
    assert code != 0
    assert f"{recorder.configuration}:2: sampler.priority" in line
    recorder.configuration.write_text(before)
    said(recorder, "reload")


def test_marks_and_pins_are_events(recorder: Recorder) -> None:
    said(recorder, "mark", "deploy", "12")
    said(recorder, "mark", "--pin", "it", "hangs")
    said(recorder, "pin", "-10s", "now", "--why", "stutter")
    assert "stutter" in [pin["why"] for pin in answer(recorder, "list", "pins")]
    kinds = {(event["kind"], event["text"]) for event in answer(recorder, "events")}
    assert {("mark", "deploy 12"), ("incident", "it hangs")} <= kinds
    assert "deploy 12" in said(recorder, "events", "--from", "-1min")
    said(recorder, "unpin", "--all")
    assert "stutter" not in [pin["why"] for pin in answer(recorder, "list", "pins")]


def test_what_others_wrote_cannot_steer_a_terminal(recorder: Recorder) -> None:
    assert said(recorder, "mark", "a\x1b[31mred") == "marked 'a\\x1b[31mred'\n"
    wait_until(lambda: "a\\x1b[31mred" in said(recorder, "events"))
    assert "\x1b" not in said(recorder, "events")
    assert "a\x1b[31mred" in [event["text"] for event in answer(recorder, "events")]


EMPTY = """
from sysmond.probe import Probe, Table, gauge, hookimpl

@hookimpl
def sysmond_probes():
    table = Table("empty", (gauge("size", "B", "A number."),), per="nothing")
    return [Probe(table, lambda host: (), interval_s=3600.0)]
"""


def test_a_table_without_rows_is_no_reason_to_list_nothing(recorder: Recorder) -> None:
    folder = recorder.folder / "config" / "sysmond" / "probes"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "empty.py").write_text(EMPTY)
    try:
        said(recorder, "reload")
        assert probe(recorder, "empty")["state"] == "active"
        assert metrics(recorder, "load")
        assert "path 'empty': has no rows now" in refused(recorder, "watch", "empty")[1]
    finally:
        (folder / "empty.py").unlink()
        said(recorder, "reload")


CROWD = """
from sysmond.probe import Probe, Table, gauge, hookimpl

@hookimpl
def sysmond_probes():
    table = Table("crowd", tuple(gauge(name, "1", "A number.") for name in ("a", "ab", "b_1")), per="member")
    return [Probe(table, lambda host: ((f"{number:04}", (1, 2, 3)) for number in range(1500)))]
"""


def test_more_series_than_one_answer_holds_are_listed_all_the_same(recorder: Recorder) -> None:
    folder = recorder.folder / "config" / "sysmond" / "probes"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "crowd.py").write_text(CROWD)
    try:
        said(recorder, "reload")
        wait_until(lambda: metrics(recorder, "crowd"), recorder.said)
        listed = [metric["path"] for metric in metrics(recorder, "crowd")]
        assert sorted(listed) == sorted(
            f"crowd/{of}@{number:04}" for of in ("a", "ab", "b_1") for number in range(1500)
        )
        assert "4500 series; expected at most 1000" in refused(recorder, "watch", "crowd")[1]
    finally:
        (folder / "crowd.py").unlink()
        said(recorder, "reload")


def test_a_probe_is_forgiven(recorder: Recorder) -> None:
    assert answer(recorder, "reset", "probe", "load") == {"name": "load", "reset": True}
    assert "load: released; it is read again" in said(recorder, "reset", "probe", "load")


def test_an_answer_that_finds_no_room_is_one_line(recorder: Recorder) -> None:
    command = [*PROGRAM, "--bus", recorder.bus.address, "list", "metrics"]
    for more in ([], ["--json"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(
                [*command, *more], stdout=full, stderr=subprocess.PIPE, text=True, timeout=HANG_S, check=False
            )
        assert (done.returncode, done.stderr) == (1, "sysmonctl: not written: No space left on device\n")


def test_everything_is_flushed(recorder: Recorder) -> None:
    assert answer(recorder, "flush")["flushed"] is True
    assert list(Path(recorder.folders.state, "public", "1s").glob("*.h5"))


def test_the_budget_has_every_tier(recorder: Recorder) -> None:
    tiers = ["1s", "10s", "1min", "5min"]
    assert list(answer(recorder, "budget")) == [*tiers, "event", *(f"records.{tier}" for tier in tiers)]
    assert re.search(r"^1s +\d+\.\d MB ", said(recorder, "budget"), re.MULTILINE)


def test_the_overhead_is_told_by_part_and_probe(recorder: Recorder) -> None:
    wait_until(lambda: "probe:load" in answer(recorder, "overhead"))
    costs = answer(recorder, "overhead")
    assert costs["sampler"]["cpu"] > 0
    assert "sampler" in said(recorder, "overhead")


def test_values_are_watched(recorder: Recorder) -> None:
    rows = answer(recorder, "watch", "--count", "1", "load/average_1min", "cpu/user@total")["values"]
    assert [row["path"] for row in rows] == ["load/average_1min", "cpu/user@total"]
    assert rows[0]["value"] >= 0
    assert rows[1]["unit"] == "%"
    assert said(recorder, "watch", "--count", "2", "load/average_1min").count("load/average_1min") == 2


def test_a_terminal_gets_colours(recorder: Recorder) -> None:
    master, slave = pty.openpty()
    command = [*PROGRAM, "--bus", recorder.bus.address, "--user", "list", "probes"]
    with subprocess.Popen(command, stdout=slave, stdin=slave, env={**os.environ, "TERM": "xterm-256color"}) as shown:
        os.close(slave)
        output = b""
        while chunk := _read(master):
            output += chunk
        assert shown.wait(HANG_S) == 0
    os.close(master)
    assert b"\x1b[32mactive" in output


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # Linux tells so that the other end is closed.
        return b""


def test_the_doctor_knows_of_every_source(recorder: Recorder) -> None:
    findings = answer(recorder, "doctor")
    by_source = {finding["source"]: finding for finding in findings}
    assert by_source["load"]["state"] == "there"
    assert {"real-time scheduling", "locked memory", "udev"} <= set(by_source)
    assert all(finding["help"] for finding in findings if finding["state"] == "missing" and finding["source"] == "udev")
    assert answer(recorder, "show", "slab")["Privilege"] == "CAP_DAC_READ_SEARCH", "what it says where it is refused"
    assert re.search(r"^privilege +CAP_DAC_READ_SEARCH$", said(recorder, "show", "slab"), re.MULTILINE)


# By machine, what the doctor finds there of all that not every machine has.
SENSED = {
    "virtual": "cpu_idle",
    "laptop": "backlight battery cooling cpu_frequency cpu_idle cpu_throttle fan gpu gpu_process lid light mains motion"
    " orientation power proximity rapl runtime_pm screen temperature usb_power voltage wakeup",
    "server": "battery btrfs btrfs_device conntrack device_mapper edac energy ext4 fan hugepages ksm md md_member nfs"
    " nfs_mount numa power rapl slab temperature voltage zram zswap",
    "arm": "air_pressure cooling cpu_frequency cpu_idle current fan gpu gpu_process humidity light motion orientation"
    " power proximity temperature voltage",
}
# Here, in a file, or of the kernel that runs: not of a described machine.
NOT_DESCRIBED = {
    "ethtool",
    "exits",
    "kernel_stack",
    "link",
    "qdisc",
    "smart",
    "smart_attribute",
    "wifi",
    "wifi_channel",
    "wifi_connection",
}


def of_hardware() -> set[str]:
    """The tables that need something which not every machine has, and are on."""
    probes = [probe for probe in generate.own_probes() if probe.needs and probe.enabled]
    return {probe.table.name for probe in probes} - NOT_DESCRIBED


@pytest.mark.parametrize("machine", first(2, SENSED))
def test_the_doctor_tells_machines_apart(machine: str, tmp_path: Path) -> None:
    root = str(sysfs.build(tmp_path, machine))
    there = set(SENSED[machine].split())
    not_here = of_hardware() - there
    with a_bus() as bus, a_recorder(bus, root=root) as recorder:

        def findings() -> dict[str, dict[str, str]]:
            return {finding["source"]: finding for finding in answer(recorder, "doctor")}

        def all_are_there() -> bool:
            states = findings()
            return all(states[name]["state"] == "there" for name in there)

        wait_until(all_are_there, recorder.said)
        found = findings()
        assert {name for name in of_hardware() if found[name]["state"] == "there"} == there
        assert {name for name in of_hardware() if found[name]["state"] == "not here"} == not_here
        for name in not_here:
            assert "this machine has no /" in found[name]["reason"]
            assert found[name]["help"]
        *lines, _, last = said(recorder, "doctor").splitlines()
        assert not_here <= set(last.rpartition(": ")[2].split(", "))
        told = {line.split()[0]: line.split()[1] for line in lines if line.strip()}
        assert {name for name in of_hardware() if told.get(name) == "there"} == there
        assert not not_here & told.keys()


def test_the_doctor_tells_what_would_help(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.write_text("")
    closed.chmod(0o600)
    rows = [
        {"name": "pressure", "state": "absent", "reason": "no source: '/proc/pressure/cpu': No such file or directory"},
        {"name": "power", "state": "absent", "reason": f"no permission: '{closed}': Permission denied"},
        {"name": "rapl", "state": "absent", "reason": "no permission: '/sys/class/powercap/intel-rapl:0/energy_uj': "
            "Permission denied"},
        {"name": "disk", "state": "disabled", "reason": "by the configuration"},
        {"name": "resctrl", "state": "absent", "reason": "no source: this machine has no /sys/fs/resctrl/mon_data/*"},
    ]  # fmt: skip
    declared = {"rapl": "CAP_DAC_READ_SEARCH", "disk": "", "pressure": "CAP_SYS_ADMIN"}
    findings = examine(rows, {"pids": {}, "runtime_dir": "/"}, declared, polkit=False)
    helps = {finding["source"]: (finding["state"], finding["help"]) for finding in findings}
    assert helps["polkit"][0] == "missing"
    assert helps["pressure"] == ("missing", "a kernel with CONFIG_PSI; psi=1 on its command line where that is off")
    assert helps["power"] == ("no permission", "root, or CAP_DAC_READ_SEARCH")
    assert helps["rapl"] == ("no permission", "CAP_DAC_READ_SEARCH"), "as it is declared, not guessed"
    assert helps["disk"] == ("disabled", "sysmonctl enable probe disk")
    assert helps["resctrl"][0] == "not here"
    reasons = {finding["source"]: finding["reason"] for finding in findings}
    assert reasons["rapl"] == "'/sys/class/powercap/intel-rapl:0/energy_uj': Permission denied", (
        "the cause is the state"
    )
    assert "mount -t resctrl" in helps["resctrl"][1]


def test_the_doctor_says_how_processes_are_read_and_why_not_better(tmp_path: Path) -> None:
    rows = [{"name": name, "state": "active", "reason": ""} for name in ("process", "load")]
    status = {"pids": {}, "runtime_dir": str(tmp_path)}
    host = Host()
    host.folder = str(tmp_path / "sampler")
    os.mkdir(host.folder)
    host.tell_way("process", "by /proc; not by BPF: the loader has not run")

    def said() -> dict[str, dict[str, str]]:
        return {finding["source"]: finding for finding in examine(rows, status)}

    assert said()["process"]["reason"] == "by /proc; not by BPF: the loader has not run"
    assert said()["load"]["reason"] == ""
    assert said()["BPF"]["state"] == "missing"
    no = "no permission: it takes CAP_BPF"
    programs = {"snapshot": {"refused": no}, "ended": {"ok": True}, "states": {"refused": "odd"}}
    (tmp_path / "bpf.json").write_text(json.dumps({"programs": programs}))
    findings = said()
    assert findings["BPF program ended"]["state"] == "there"
    refused = findings["BPF program snapshot"]
    assert (refused["state"], refused["reason"]) == ("missing", no)
    assert refused["help"] == "root, or CAP_BPF and CAP_PERFMON for the loader"
    assert findings["BPF program states"]["reason"] == "odd"
    for damaged in ("{", "[]", '{"programs": 1}'):
        (tmp_path / "bpf.json").write_text(damaged)
        assert said()["BPF"]["help"] == "start sysmond anew"


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (("enable", "probe", "lode"), 2, "there is no probe 'lode'; did you mean load"),
        (("show", "lode"), 2, "there is no probe 'lode'; did you mean load"),
        (("set", "probe", "load", "interval", "1us"), 2, "interval"),
        (("set", "probe", "load", "interval", "soon"), 2, "'soon'"),
        (("set", "probe", "load", "colour", "red"), 2, "colour"),
        (("disable", "prob", "load"), 2, "there is no probe 'prob'; did you mean probe? (expected probe)"),
        (("list", "probe"), 2, "WHAT 'probe': not known; did you mean probes"),
        (("pin", "now", "-1h"), 2, "before it begins"),
        (("unpin",), 2, "expected either a time T or --all"),
        (("unpin", "2025-01-31T14:30:00Z"), 2, "sysmonctl: 2025-01-31T14:30:00Z: nothing is pinned at that time"),
        (("watch", "lode/one"), 2, "there is no table"),
        (("watch", "--count", "0", "load"), 2, "expected 1 or more"),
        (("stauts",), 2, "there is no command 'stauts'; did you mean status"),
        (("status", "--colour"), 2, "--colour"),
    ],
)
def test_what_is_wrong_is_one_line(recorder: Recorder, words: tuple[str, ...], code: int, line: str) -> None:
    code_given, line_given = refused(recorder, *words)
    assert line in line_given
    assert code_given == code


def test_where_nobody_answers_that_is_said() -> None:
    with a_bus() as bus:
        done = subprocess.run(
            [*PROGRAM, "--bus", bus.address, "status"], capture_output=True, text=True, timeout=HANG_S, check=False
        )
    assert done.returncode == 1
    assert "no sysmond there" in done.stderr


@pytest.mark.parametrize("words", [("events", "--follow"), ("watch", "load")])
@pytest.mark.parametrize("who", first(1, ["sysmond", "bus"]))
def test_who_follows_is_told_of_the_end(who: str, words: tuple[str, ...]) -> None:
    with a_bus() as bus, a_recorder(bus) as recorder:
        wait_until(lambda: metrics(recorder, "load"), recorder.said)
        command = [*PROGRAM, "--bus", bus.address, *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:

            def has_heard(output: Any = following.stdout) -> bool:
                said(recorder, "mark", "something to follow")
                return bool(select.select([output], [], [], 0)[0])

            wait_until(has_heard, recorder.said)
            if who == "bus":
                bus.kill()
            else:
                os.kill(recorder.pid("daemon"), signal.SIGKILL)
            _, line = following.communicate(timeout=HANG_S)
        assert following.returncode == 1
        assert line.startswith("sysmonctl: unix:path=")
        assert line.count("\n") == 1


@pytest.mark.parametrize(("address", "code"), [("nonsense", 2), ("unix:path=/nonexistent/bus", 1)])
def test_a_bus_that_is_none_is_named(address: str, code: int) -> None:
    command = [*PROGRAM, "--bus", address, "status"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == code
    assert done.stderr.count(address) == 1


def test_a_time_may_begin_with_a_hyphen() -> None:
    options = ctl.parser().parse_args(["pin", "-10s", "-5s", "--why", "x"])
    assert (options.start, options.end, options.why) == ("-10s", "-5s", "x")
    with pytest.raises(UsageError):
        ctl.parser().parse_args(["pin", "--10s", "now"])


@pytest.mark.parametrize(
    ("interval_ns", "text"), [(0, "–"), (50_000_000, "50ms"), (1_000_000_000, "1s"), (300_000_000_000, "5min")]
)
def test_intervals_are_spelled_as_they_are_written(interval_ns: int, text: str) -> None:
    assert command_output.interval(interval_ns) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (61, "1 min 1 s"), (90_000, "1 d 1 h")])
def test_lengths_of_time_are_spelled_in_units(seconds: float, text: str) -> None:
    assert command_output.duration(seconds) == text
