# SPDX-License-Identifier: Apache-2.0
"""sysmonctl where there is no bus: the same answers, with the rights of whoever asks."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sysmon_tools import ctl
from sysmon_tools.commands import DEFAULT
from sysmond.errors import Error
from sysmond.sources.kmsg import KINDS, OTHER, kind_of, parse
from tests.support.waiting import HANG_S, wait_until
from tests.support.whole import Asker, ProgramRun, Recorder, a_recorder, cannot_ask, run_as

PROGRAM = [sys.executable, "-P", "-m", "sysmon_tools.ctl"]
# What the kernel's messages tell, which are restricted.
KERNELS = {*KINDS, OTHER}
CANNOT_ASK = cannot_ask()
BY_A_STRANGER = pytest.mark.skipif(bool(CANNOT_ASK), reason=CANNOT_ASK)


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with a_recorder() as recorder:
        recorder.start()
        wait_until(lambda: ask(recorder, "status").code == 0, recorder.said)
        wait_until(lambda: answer(recorder, "list", "metrics"), recorder.said)
        yield recorder


def ask(recorder: Recorder, *words: str, by: Asker | None = None) -> ProgramRun:
    return run_as(by, lambda: ctl.main([*words, *recorder.where()]))


def answer(recorder: Recorder, *words: str, by: Asker | None = None) -> Any:
    run = ask(recorder, *words, "--json", by=by)
    assert run.code == 0, run.err
    return json.loads(run.out)


def probe(recorder: Recorder, name: str) -> dict[str, Any]:
    return next(probe for probe in answer(recorder, "list", "probes") if probe["name"] == name)


def test_it_says_how_the_recorder_is_and_that_it_is_on_no_bus(recorder: Recorder) -> None:
    status = answer(recorder, "status")
    assert (status["state"], status["bus_name"]) == ("running", "")
    assert set(status["pids"]) == {"daemon", "sampler", "background", "archiver"}
    assert status["runtime_dir"] == recorder.folders.runtime
    assert b"bus      none" in ask(recorder, "status").out


@pytest.mark.parametrize("what", ctl.LISTS)
def test_what_there_is_is_listed(recorder: Recorder, what: str) -> None:
    assert isinstance(answer(recorder, "list", what), list)


@pytest.mark.parametrize(
    "words", [("config",), ("budget",), ("overhead",), ("doctor",), ("show", "cpu"), ("watch", "load", "--count", "1")]
)
def test_every_other_question_is_answered(recorder: Recorder, words: tuple[str, ...]) -> None:
    assert ask(recorder, *words).out


def test_the_doctor_cites_no_exception_and_asks_for_no_polkit_where_no_bus_is(recorder: Recorder) -> None:
    findings = {finding["source"]: finding for finding in answer(recorder, "doctor")}
    assert [finding for finding in findings.values() if "Error" in finding["reason"]] == []
    assert "polkit" not in findings


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list", "pins"), "nothing is pinned\n"),
        (("unpin", "--all"), "nothing was pinned\n"),
        (("config", "--changed"), "no file changes anything: all settings are defaults\n"),
        (("list", "clients"), "no clients\n"),
    ],
)
def test_a_list_of_nothing_says_so(recorder: Recorder, words: tuple[str, ...], said: str) -> None:
    ask(recorder, "unpin", "--all")  # Memory that runs out in another test is an incident of this machine, too.
    assert ask(recorder, *words).out.decode() == said


def test_a_time_without_events_is_said(recorder: Recorder) -> None:
    words = ("events", "--from=2025-01-31T00:00:00Z", "--to=2025-01-31T00:01:00Z")
    assert ask(recorder, *words).out.startswith(b"nothing happened from 2025-01-31T")


def test_a_change_is_in_force_when_it_is_answered(recorder: Recorder) -> None:
    written = f"written to {recorder.config}.d/90-sysmonctl.yaml, for every recorder that reads it"
    disabled = f"load: disabled, every 1s, realtime lane ({written})\n"
    assert ask(recorder, "disable", "load").out.decode() == disabled
    assert probe(recorder, "load")["state"] == "disabled"
    assert ask(recorder, "enable", "probe", "load").code == 0
    assert probe(recorder, "load")["state"] == "active"
    assert ask(recorder, "set", "load", "interval", "2s").out.startswith(b"probes.load.interval: 2s (written to ")
    assert ask(recorder, "set", "load", "interval", "3").out.startswith(b"probes.load.interval: 3s (written to ")
    assert ask(recorder, "set", "load", "interval", "2s").code == 0
    assert probe(recorder, "load")["interval_ns"] == 2 * 10**9
    assert ask(recorder, "set", "load", "interval", "default").code == 0
    assert probe(recorder, "load")["interval_ns"] == 10**9
    assert ask(recorder, "reset", "load").code == 0
    assert ask(recorder, "reload").code == 0


def test_what_a_setting_costs_is_said_where_it_is_made(recorder: Recorder) -> None:
    run = ask(recorder, "set", "load", "interval", "50ms")
    assert (run.code, run.err.count("\n")) == (0, 1)
    assert run.err.startswith("sysmonctl: probes.load.interval: 50ms is 20 readings a second; ")
    assert ask(recorder, "set", "load", "interval", DEFAULT).err == ""


def test_a_configuration_that_is_refused_is_named_with_its_line_by_reload_and_status(recorder: Recorder) -> None:
    before = recorder.config.read_text()
    recorder.config.write_text("probes:\n  load:\n    interval: 5x\n")
    said = f"{recorder.config}:3: probes.load.interval: '5x' is wrong; expected a duration"
    run = ask(recorder, "reload")
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert said in run.err
    status = answer(recorder, "status")
    assert status["state"] == "degraded"
    assert any(said in line for line in status["lacks"])
    recorder.config.write_text(before)
    assert ask(recorder, "reload").code == 0
    assert answer(recorder, "status")["state"] == "running"


def test_every_setting_can_be_changed_and_taken_back(recorder: Recorder) -> None:
    def setting(key: str) -> dict[str, str]:
        return next(row for row in answer(recorder, "config") if row["key"] == key)

    before = setting("tiers.1s.size")
    assert before["origin"] == "default"
    assert answer(recorder, "set", "tiers.1s.size", "1GB")["value"] == setting("tiers.1s.size")["value"] == "1GB"
    assert "90-sysmonctl.yaml" in setting("tiers.1s.size")["origin"]
    assert ask(recorder, "set", "tiers.1s.size", DEFAULT).out.endswith(b" (default)\n")
    assert setting("tiers.1s.size") == before
    assert answer(recorder, "set", "probe", "wifi", "enabled", "false")["value"] == "false"
    assert ask(recorder, "set", "wifi", "enabled", DEFAULT).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tiers.1s.size", "much"], "tiers.1s.size: 'much'"),
        (["tiers.1s.siz", "1GB"], "did you mean size"),
        (["tier.1s.size", "1GB"], "did you mean tiers"),
        (["load", "colour", "red"], "probes.load"),
        (["tiers.1s.size"], "expected KEY VALUE"),
        (["size", "1GB"], "expected KEY VALUE"),
        (["lode", "interval", "1s"], "lode"),
    ],
)
def test_a_wrong_setting_changes_nothing(recorder: Recorder, words: list[str], said: str) -> None:
    before = answer(recorder, "config")
    run = ask(recorder, "set", *words)
    assert (run.code, run.out) == (2, b""), run.err
    assert said in run.err
    assert run.err.count("\n") == 1
    assert answer(recorder, "config") == before


def test_marks_flushes_and_pins_arrive(recorder: Recorder) -> None:
    assert ask(recorder, "mark", "it", "stutters").code == 0
    assert ask(recorder, "flush").code == 0
    assert any(event["text"] == "it stutters" for event in answer(recorder, "events"))
    assert ask(recorder, "pin", "5 seconds ago", "now", "--why=here").code == 0
    assert "here" in [pinned["why"] for pinned in answer(recorder, "list", "pins")]
    assert ask(recorder, "unpin", "--all").code == 0


def test_events_are_shown_and_then_followed(recorder: Recorder) -> None:
    assert ask(recorder, "mark", "before").code == 0
    command = [*PROGRAM, "events", "--from=-1min", "--follow", "--json", *recorder.where()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        texts: list[str] = []
        try:
            while "before" not in texts:
                texts.append(json.loads(following.stdout.readline())["text"])
            while not select.select([following.stdout], [], [], 0.5)[0]:  # It looks once a second.
                assert ask(recorder, "mark", "after").code == 0
            while "after" not in texts:
                texts.append(json.loads(following.stdout.readline())["text"])
        finally:
            following.terminate()
    assert texts.index("before") < texts.index("after")


@BY_A_STRANGER
def test_a_stranger_may_ask_and_change_nothing(recorder: Recorder) -> None:
    stranger = Asker()
    assert answer(recorder, "status", by=stranger)["state"] == "running"
    public = {metric["sensitivity"] for metric in answer(recorder, "list", "metrics", by=stranger)}
    assert public == {"public"}
    for words in (["mark", "x"], ["flush"], ["reload"], ["disable", "load"], ["pin", "-1min", "now"]):
        run = ask(recorder, *words, by=stranger)
        assert (run.code, run.out) == (77, b""), words
        assert run.err.count("\n") == 1
    assert probe(recorder, "load")["state"] == "active"


@BY_A_STRANGER
def test_who_may_not_see_what_is_restricted_is_told_no_events_of_it(recorder: Recorder) -> None:
    if not any(kind_of(message)[0] for line in kernel_messages() if (message := parse(line))):
        pytest.skip("this kernel has reported no trouble since it booted")
    wait_until(lambda: kinds(recorder) & KERNELS, recorder.said)
    assert not kinds(recorder, by=Asker()) & KERNELS
    assert "start" in kinds(recorder, by=Asker())


def kinds(recorder: Recorder, by: Asker | None = None) -> set[str]:
    return {event["kind"] for event in answer(recorder, "events", "--from=boot", by=by)}


def kernel_messages() -> Iterator[bytes]:
    """All that the kernel still has."""
    reading = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            yield os.read(reading, 8192)
    except BlockingIOError:
        return
    finally:
        os.close(reading)


def test_where_no_recorder_runs_is_said(tmp_path: Any) -> None:
    run = run_as(None, lambda: ctl.main(["status", f"--runtime-dir={tmp_path}"]))
    assert (run.code, run.out) == (1, b"")
    assert run.err == f"sysmonctl: {tmp_path}: no recorder is running there; 'sysmond' starts one\n"


def test_a_bus_and_a_folder_are_not_both_meant(tmp_path: Any) -> None:
    run = run_as(None, lambda: ctl.main(["status", "--bus=session", f"--runtime-dir={tmp_path}"]))
    assert (run.code, run.err) == (2, "sysmonctl: --bus and a folder: expected only one of them\n")


def test_where_neither_a_bus_nor_a_recorder_is_only_the_recorder_is_missed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    own = {"XDG_RUNTIME_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    environ = {**os.environ, **own, "DBUS_SESSION_BUS_ADDRESS": f"unix:path={tmp_path}/none"}
    done = subprocess.run(
        [*PROGRAM, "--user", "status"], env=environ, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"sysmonctl: {tmp_path}/sysmond: no recorder is running there; 'sysmond' starts one\n"


def test_one_that_ended_is_not_taken_for_one_that_runs() -> None:
    with a_recorder() as recorder:
        recorder.start()
        wait_until(lambda: ask(recorder, "status").code == 0, recorder.said)
        recorder.end()
        run = ask(recorder, "status")
    assert run.code == 1
    assert "no recorder is running there" in run.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["disable", "disk"], ["disable", "probe", "disk"]),
        (["disable", "probe", "disk"], ["disable", "probe", "disk"]),
        (["--user", "reset", "disk"], ["--user", "reset", "probe", "disk"]),
        (["set", "disk", "interval", "1s"], ["set", "disk", "interval", "1s"]),
        (["disable", "disk", "--bus", "session"], ["disable", "probe", "disk", "--bus", "session"]),
        (["disable", "prob", "disk"], ["disable", "prob", "disk"]),
        (["enable", "--help"], ["enable", "--help"]),
        (["enable"], ["enable"]),
        (["status"], ["status"]),
    ],
)
def test_the_word_probe_may_be_left_out(words: list[str], expected: list[str]) -> None:
    assert ctl.with_kind(words) == expected


def test_a_follower_ends_with_its_recorder() -> None:
    with a_recorder() as recorder:
        recorder.start()
        wait_until(lambda: ask(recorder, "status").code == 0, recorder.said)
        command = [*PROGRAM, "events", "--follow", *recorder.where()]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
            recorder.end()
            said = following.communicate(timeout=HANG_S)[1]
    assert following.returncode == 1
    assert "no recorder is running there" in said


def test_who_names_a_state_folder_alone_is_told_of_the_runtime_folder(recorder: Recorder) -> None:
    [daemon] = recorder.processes
    state = ("--state-dir", recorder.folders.state)
    said = f"process {daemon.pid} records there and holds the rest in RAM: expected --runtime-dir="
    said = f"{recorder.folders.state}: {said}{recorder.folders.runtime}, too\n"
    for words in (["status"], ["events"], ["mark", "text"], ["flush"], ["list", "probes"]):
        refused = run_as(None, partial(ctl.main, [*words, *state]))
        assert (refused.code, refused.out, refused.err) == (Error.exit_code, b"", f"sysmonctl: {said}")


def test_a_runtime_folder_alone_has_the_archive_of_its_recorder(recorder: Recorder) -> None:
    status = run_as(None, lambda: ctl.main(["status", "--json", "--runtime-dir", recorder.folders.runtime]))
    assert json.loads(status.out)["state_dir"] == recorder.folders.state
