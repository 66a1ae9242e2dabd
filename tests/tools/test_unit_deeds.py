# SPDX-License-Identifier: Apache-2.0
"""Signals, freezing and thawing of units and control groups: a real systemd, and the kernel's own control groups.

What is frozen for ten minutes sleeps anyway, and goes with its test.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from sysmon_tools import cgroup_deeds, unit_deeds
from sysmon_tools.grid import Field
from sysmon_tools.screen import look
from sysmon_tools.screen.app import SysmonApp
from sysmon_tools.screen.frozen import Frozen
from sysmon_tools.screen.question import SheetRows
from sysmon_tools.targets import GroupTarget
from sysmond.bus.wire.adapter import RemoteError
from sysmond.errors import Error, NotPermittedError, UsageError
from sysmond.history import Archive
from sysmond.sources.unit_states import SYSTEMD
from tests.support import onbus, screens, whole
from tests.support.onsystemd import speaking
from tests.support.ownsystemd import OwnSystemd, a_systemd
from tests.support.stall import STALL_NS, stuck
from tests.support.waiting import HANG_S, wait_until

LONG_S, SHORT_S = 600, 1
SLEEP = ("sleep", "600")
DEED = """
import asyncio, os, signal
from sysmon_tools import unit_deeds
from sysmon_tools.targets import GroupTarget
from sysmond.errors import Error
async def deed():
    target = GroupTarget({unit!r}, "", os.geteuid())
    try:
        print(await unit_deeds.{call}, flush=True)
    except Error as problem:
        print(problem)
asyncio.run(deed())
"""
# Systemd's own policy for the bus of the machine: FreezeUnit and ThawUnit are for root.
KEPT_FROM_US = """
from sysmon_tools import unit_deeds
from sysmond.bus.wire.adapter import RemoteError
ask = unit_deeds._Systemd.ask
async def refused(self, member, *rest):
    if member in {"FreezeUnit", "ThawUnit"}:
        raise RemoteError("org.freedesktop.DBus.Error.AccessDenied", "Rejected", is_of_bus=True)
    return await ask(self, member, *rest)
unit_deeds._Systemd.ask = refused
"""
ANSWERED_LATE = """
import asyncio
from sysmon_tools import unit_deeds
freeze = unit_deeds._Systemd.freeze
async def late(self, unit):
    while await self._is_there(unit_deeds.timer_of(unit)):
        await asyncio.sleep(0.05)
    await freeze(self, unit)
unit_deeds._Systemd.freeze = late
"""
DIES = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"


@pytest.fixture(scope="module")
def systemd() -> Iterator[OwnSystemd]:
    with a_systemd() as one:
        yield one


@pytest.fixture
def unit(systemd: OwnSystemd, request: pytest.FixtureRequest) -> Iterator[str]:
    """A service that sleeps, of a name with signs that a unit's may have."""
    name = rf"s-\x2d_{abs(hash(request.node.name))}@1:2.service"
    systemd.starts(name, *SLEEP)
    yield name
    systemd.systemctl("thaw", name)
    systemd.systemctl("stop", unit_deeds.timer_of(name), name)


def state(systemd: OwnSystemd, unit: str) -> str:
    return systemd.shows(unit, "FreezerState")


def deed(systemd: OwnSystemd, unit: str, call: str, before: str = "") -> str:
    done = systemd.python(before + DEED.format(unit=unit, call=call))
    assert done.stderr == ""
    return done.stdout.strip()


def test_what_is_frozen_has_a_timer_that_thaws_it_and_thawing_takes_it_away(systemd: OwnSystemd, unit: str) -> None:
    timer = unit_deeds.timer_of(unit)
    assert deed(systemd, unit, f"freeze(target, {LONG_S})") == f"froze {unit} for 10min"
    assert state(systemd, unit) == "frozen"
    assert systemd.shows(timer, "ActiveState") == "active"
    assert "already frozen" in deed(systemd, unit, f"freeze(target, {LONG_S})")
    assert deed(systemd, unit, "thaw(target)") == f"thawed {unit}"
    assert state(systemd, unit) == "running"
    wait_until(lambda: systemd.shows(timer, "LoadState") == "not-found")


def test_where_the_bus_keeps_freezing_for_root_a_service_freezes_and_thaws(systemd: OwnSystemd, unit: str) -> None:
    timer = unit_deeds.timer_of(unit)
    assert deed(systemd, unit, f"freeze(target, {LONG_S})", KEPT_FROM_US) == f"froze {unit} for 10min"
    assert (state(systemd, unit), systemd.shows(timer, "ActiveState")) == ("frozen", "active")
    assert deed(systemd, unit, "thaw(target)", KEPT_FROM_US) == f"thawed {unit}"
    assert state(systemd, unit) == "running"
    wait_until(lambda: systemd.shows(timer, "LoadState") == "not-found")
    said = deed(systemd, "nobody.service", "thaw(target)", KEPT_FROM_US)
    assert said.startswith("nobody.service: ")
    assert "\n" not in said


def test_what_was_frozen_when_its_time_was_over_is_thawed_at_once(systemd: OwnSystemd, unit: str) -> None:
    said = deed(systemd, unit, f"freeze(target, {SHORT_S})", ANSWERED_LATE)
    assert said == f"{unit}: thawed again: its time was over before it was frozen"
    assert state(systemd, unit) == "running"


def test_a_client_that_is_killed_after_freezing_leaves_nothing_frozen(systemd: OwnSystemd, unit: str) -> None:
    done = systemd.python(DEED.format(unit=unit, call=f"freeze(target, {SHORT_S})") + DIES)
    assert (done.stdout, done.returncode) == (f"froze {unit} for 1s\n", -signal.SIGKILL)
    wait_until(lambda: systemd.shows(unit_deeds.timer_of(unit), "LoadState") == "not-found")
    wait_until(lambda: state(systemd, unit) == "running")


def test_a_whole_slice_is_thawed(systemd: OwnSystemd) -> None:
    systemd.starts("within.service", "--slice=around.slice", *SLEEP)
    assert deed(systemd, "around.slice", f"freeze(target, {SHORT_S})") == "froze around.slice for 1s"
    wait_until(lambda: state(systemd, "around.slice") == "running")
    systemd.systemctl("stop", "within.service")


def test_where_the_thaw_cannot_be_armed_nothing_is_frozen(systemd: OwnSystemd, unit: str) -> None:
    systemd.starts(unit_deeds.timer_of(unit).removesuffix(".timer"), "--on-active=1h", "true")
    assert "could not be scheduled, so nothing was frozen" in deed(systemd, unit, f"freeze(target, {LONG_S})")
    assert state(systemd, unit) == "running"


def test_a_unit_that_holds_what_must_go_on_is_not_frozen_nor_one_around_it(systemd: OwnSystemd, tmp_path: Path) -> None:
    shutil.copy("/bin/sleep", tmp_path / "sshd")
    systemd.starts("looks-harmless.service", "--slice=around.slice", f"{tmp_path}/sshd", "600")
    wait_until(lambda: systemd.shows("looks-harmless.service", "MainPID") not in {"", "0"})
    for unit in ("looks-harmless.service", "around.slice"):
        assert "(sshd) is in it: lets people log in" in deed(systemd, unit, f"freeze(target, {LONG_S})")
        assert state(systemd, unit) == "running"
        assert systemd.shows(unit_deeds.timer_of(unit), "LoadState") == "not-found"
    assert "(systemd) is in it" in deed(systemd, "init.scope", f"freeze(target, {LONG_S})")
    systemd.systemctl("stop", "looks-harmless.service")


def test_a_signal_reaches_all_of_a_unit(systemd: OwnSystemd, unit: str) -> None:
    assert deed(systemd, unit, "send(target, signal.SIGTERM)") == f"sent SIGTERM to all of {unit}"
    wait_until(lambda: systemd.shows(unit, "ActiveState") != "active")
    assert deed(systemd, "nobody.service", "send(target, signal.SIGTERM)").startswith("nobody.service: Unit nobody")
    assert "nobody.service" in deed(systemd, "nobody.service", "freeze(target, 60)")


def test_a_shell_freezes_and_thaws(systemd: OwnSystemd, unit: str) -> None:
    def ctl(*words: str) -> subprocess.CompletedProcess[str]:
        return systemd.run(sys.executable, "-m", "sysmon_tools.ctl", "--user", *words)

    frozen = ctl("--json", "freeze", unit, "--for", "10min")
    assert json.loads(frozen.stdout) == {"done": f"froze {unit} for 10min", "marked": False}
    assert state(systemd, unit) == "frozen"
    assert ctl("thaw", unit).stdout.startswith(f"thawed {unit}; not marked: ")
    assert state(systemd, unit) == "running"
    refused = [ctl("freeze", *words) for words in ((unit, "--for=11min"), ("init.scope",), ("a/b",), ("nobody",))]
    assert [done.returncode for done in refused] == [2, 1, 2, 1]
    assert "expected 1s to 10min" in refused[0].stderr
    assert "process" in refused[1].stderr
    assert "nobody.service" in refused[3].stderr
    assert [done.stderr.count("\n") for done in refused] == [1] * len(refused)


def test_what_a_shell_does_is_marked(sleepers: "Sleepers") -> None:
    with whole.a_recorder() as recorder:
        recorder.start()

        def ctl(*words: str) -> str:
            command = [sys.executable, "-m", "sysmon_tools.ctl", *recorder.where(), *words]
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout

        wait_until(lambda: ctl("status"), recorder.said)
        assert ctl("thaw", sleepers.path) == f"thawed {sleepers.path}\n"
        wait_until(lambda: f"thawed {sleepers.path}" in ctl("events"), recorder.said)


def test_a_unit_of_somebody_elses_systemd_is_refused() -> None:
    with pytest.raises(NotPermittedError, match="is a unit of user 4711"):
        asyncio.run(unit_deeds.thaw(GroupTarget("x.service", "", 4711)))


X = GroupTarget("x.service")


@pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="no dbus-daemon here")
@pytest.mark.parametrize(
    ("members", "deed"),
    [
        (["StartTransientUnit"], lambda: unit_deeds.freeze(X, LONG_S)),
        (["ThawUnit", "StartTransientUnit"], lambda: unit_deeds.thaw(X)),
        (["KillUnit"], lambda: unit_deeds.send(X, signal.SIGTERM)),
    ],
)
def test_who_may_not_is_told_so_and_nothing_is_frozen(
    monkeypatch: pytest.MonkeyPatch, members: list[str], deed: Callable[[], Coroutine[None, None, str]]
) -> None:
    whom = f'send_destination="{SYSTEMD}" send_interface="{SYSTEMD}.Manager"'
    rules = "".join(f'<deny {whom} send_member="{member}"/>' for member in members)
    with onbus.a_bus(owner=f'<policy context="default">{rules}</policy>') as bus, speaking(bus.address, SYSTEMD) as one:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
        one.tell("answer", "GetUnit", "o", ["/x"])
        one.tell("answer", "Get", "v", [{"as": "s", "is": "running"}])  # Of every property.
        with pytest.raises(
            NotPermittedError, match=r"^x\.service: no permission: the policy of D-Bus does not let [^\n]*$"
        ):
            asyncio.run(deed())
        called = one.tell("called").split()
    assert set(called) == ({"GetUnit", "Get"} if members == ["StartTransientUnit"] else set())


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("InteractiveAuthorizationRequired", "Interactive authentication required.", "no agent is here to ask for it"),
        ("AccessDenied", "Permission denied", "polkit does not let you"),
        ("AccessDenied", "SELinux policy denies access.", "SELinux policy denies access."),
    ],
)
def test_what_is_missing_for_a_deed_is_said(name: str, text: str, said: str) -> None:
    assert said in unit_deeds._denial(RemoteError(f"org.freedesktop.DBus.Error.{name}", text))


def test_where_there_is_no_bus_that_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    with pytest.raises(Error, match=r"x\.service: no connection to systemd: .*No such file") as caught:
        asyncio.run(unit_deeds.freeze(GroupTarget("x.service"), LONG_S))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "time_s"), [("2min", 120), ("1", 1), ("10 min", 600)])
def test_a_time_to_freeze_is_read(text: str, time_s: int) -> None:
    assert unit_deeds.freezing_time_s(text) == time_s


@pytest.mark.parametrize("text", ["0", "10ms", "11min", "601", "1h", "for ever", ""])
def test_nothing_is_frozen_for_longer_than_ten_minutes(text: str) -> None:
    with pytest.raises(UsageError):
        unit_deeds.freezing_time_s(text)


# --- control groups of no unit --------------------------------------------------------------------------


class Sleepers:
    """A control group of this kernel, with a process in it and one below."""

    def __init__(self, folder: Path) -> None:
        self.path = f"/{folder.name}"
        self.folder = folder
        self.below = folder / "below"
        self.below.mkdir()
        self.processes = [subprocess.Popen(SLEEP), subprocess.Popen(SLEEP)]
        for process, where in zip(self.processes, (self.below, folder), strict=True):
            (where / "cgroup.procs").write_text(str(process.pid))

    def is_frozen(self) -> bool:
        return "frozen 1" in (self.below / "cgroup.events").read_text()


@pytest.fixture
def sleepers() -> Iterator[Sleepers]:
    if os.geteuid():
        pytest.skip("making control groups needs root")
    try:
        folder = Path(cgroup_deeds.folder_of("/")) / f"sysmond-frozen-{os.getpid()}"
        folder.mkdir()
    except (Error, OSError) as refusal:
        pytest.skip(f"no control group can be made: {refusal}")
    made = Sleepers(folder)
    yield made
    (folder / "cgroup.freeze").write_text("0")
    for process in made.processes:
        process.kill()
        process.wait()
    events = folder / "cgroup.events"
    wait_until(lambda: "populated 0" in events.read_text())
    for one in (made.below, folder):
        one.rmdir()


def guardians(sleepers: Sleepers) -> list[str]:
    words = ["pgrep", "-f", f"sysmon-thaw.*{sleepers.folder}"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()


def test_a_control_group_is_frozen_and_thawed_and_its_guardian_ends(sleepers: Sleepers) -> None:
    target = GroupTarget("", sleepers.path)
    assert asyncio.run(unit_deeds.freeze(target, LONG_S)) == f"froze {sleepers.path} for 10min"
    wait_until(sleepers.is_frozen)
    assert guardians(sleepers)
    with pytest.raises(Error, match="already frozen"):
        asyncio.run(unit_deeds.freeze(target, LONG_S))
    assert asyncio.run(unit_deeds.thaw(target)) == f"thawed {sleepers.path}"
    wait_until(lambda: not sleepers.is_frozen())
    wait_until(lambda: not guardians(sleepers))


def test_a_control_group_is_thawed_though_its_client_is_killed(sleepers: Sleepers) -> None:
    script = f"from sysmon_tools import cgroup_deeds\ncgroup_deeds.freeze({sleepers.path!r}, {SHORT_S})\n{DIES}"
    done = subprocess.run([sys.executable, "-c", script], check=False, start_new_session=True)
    assert done.returncode == -signal.SIGKILL
    wait_until(lambda: not guardians(sleepers))
    assert not sleepers.is_frozen()


def test_a_guardian_that_is_ended_thaws_at_once(sleepers: Sleepers) -> None:
    cgroup_deeds.freeze(sleepers.path, LONG_S)
    wait_until(sleepers.is_frozen)
    for pid in guardians(sleepers):
        os.kill(int(pid), signal.SIGTERM)
    wait_until(lambda: not sleepers.is_frozen())


def test_a_signal_reaches_all_of_a_control_group(sleepers: Sleepers) -> None:
    said = asyncio.run(unit_deeds.send(GroupTarget("", sleepers.path), signal.SIGTERM))
    assert said == f"sent SIGTERM to 2 processes of {sleepers.path}"
    assert [process.wait() for process in sleepers.processes] == [-signal.SIGTERM] * 2
    with pytest.raises(Error, match="there are no processes in it"):
        asyncio.run(unit_deeds.send(GroupTarget("", sleepers.path), signal.SIGTERM))


def test_keys_of_the_screen_freeze_and_thaw_the_row_that_was_meant(sleepers: Sleepers, tmp_path: Path) -> None:
    nobody = argparse.Namespace(bus=f"unix:path={tmp_path}/none", state_dir=None, runtime_dir=None)

    row = Field("instance", lambda _: sleepers.path)

    async def lines() -> list[str]:
        live = look.opened(look.live(STALL_NS), "cgroups")
        app = SysmonApp(Archive(stuck(tmp_path, "")), live, nobody, now=lambda: STALL_NS)
        async with app.run_test(size=(150, 30)) as pilot:
            await screens.settled(pilot)
            said = []
            for key, does in (("F", "froze"), ("U", "thawed")):
                while app._prompt is None:  # Live, the rows that there are come in between.
                    app._rows.draw(SheetRows([row], [0]))
                    await pilot.press(key)
                app._rows.draw(SheetRows((), ()))  # As when it has gone meanwhile.
                said.append(screens.seen(app))
                await pilot.press("enter")
                async with asyncio.timeout(HANG_S):
                    while f"{does} {sleepers.path}" not in app._said or "not marked" not in app._said:
                        await pilot.pause(0.02)
                said += [str(sleepers.is_frozen())]
            return said

    asked, is_frozen, asked_then, is_still_frozen = asyncio.run(lines())
    assert f"freeze {sleepers.path}, for (at most 10min)" in asked
    assert f"thaw {sleepers.path}" in asked_then
    assert (is_frozen, is_still_frozen) == ("True", "False")


def test_the_screen_marks_what_is_frozen_and_says_what_thaws_it(sleepers: Sleepers, tmp_path: Path) -> None:
    archive = Archive(stuck(tmp_path, ""))
    below, process = sleepers.processes

    def field(name: str, text: str) -> Field:
        return Field(name, lambda _: text, is_text=True)

    def shown(view: str, *, is_live: bool = True, **cells: str) -> str:
        rows = SheetRows([field(name, text) for name, text in cells.items()], [0])

        async def lines() -> str:
            live = look.opened(look.live(STALL_NS), view)._replace(is_live=is_live)
            app = SysmonApp(archive, live, argparse.Namespace(), now=lambda: STALL_NS)
            async with app.run_test(size=(150, 30)) as pilot:
                await screens.settled(pilot)
                app._rows.note = app._note if is_live else None
                app._rows.draw(rows)
                app._draw()
                app._lists.display, app._rows.display = False, True
                await pilot.pause()
                return screens.seen(app)

        return asyncio.run(lines())

    assert "(frozen)" not in shown("cgroups", instance=sleepers.path)
    cgroup_deeds.freeze(sleepers.path, LONG_S)
    wait_until(sleepers.is_frozen)
    itself = shown("cgroups", instance=sleepers.path, more="x")
    assert f"{sleepers.path[:20]}" in itself
    assert "(frozen)" in itself
    assert f"{sleepers.path} is frozen: U thaws it" in itself
    assert f"frozen with {sleepers.path}, in" in shown("cgroups", instance=f"{sleepers.path}/below", more="x")
    of_process = shown("processes", pid=str(process.pid), comm="sleep", more="x")
    assert "sleep (frozen)" in of_process
    assert f"frozen with {sleepers.path}, in 'c' cgroups or 'u' units: U thaws it there" in of_process
    assert below.pid != process.pid
    assert "(frozen)" not in shown("processes", is_live=False, pid=str(process.pid), comm="sleep", more="x")
    assert "(frozen)" not in shown("processes", pid=str(os.getpid()), comm="pytest", more="x")
    cgroup_deeds.thaw(sleepers.path)


def test_a_unit_that_is_frozen_is_known_by_the_control_group_of_its_name(
    systemd: OwnSystemd, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup_deeds, "folder_of", lambda _: systemd.cgroup)
    tells, units = Frozen(), look.opened(look.live(STALL_NS), "units")
    assert tells.by(units, {"unit": unit}) == ""
    systemd.systemctl("freeze", unit)
    assert tells.by(units, {"unit": unit}) == ""  # As it was known for these rows.
    tells.forget()
    assert tells.by(units, {"unit": unit}).endswith(f"/{unit}")
    assert tells.says(units, {"unit": unit}, "U") == f"{unit} is frozen: U thaws it"
    assert tells.by(units, {"unit": "nobody.service"}) == ""


def test_where_we_are_ourselves_is_not_frozen() -> None:
    own = next(process.cgroup for process in cgroup_deeds.presences() if process.pid == os.getpid())
    with pytest.raises(Error, match="was not frozen: "):
        asyncio.run(unit_deeds.freeze(GroupTarget("", own), LONG_S))
    with pytest.raises(Error, match="not a control group of version 2"):
        asyncio.run(unit_deeds.freeze(GroupTarget("", "/there-is-none"), LONG_S))
