# SPDX-License-Identifier: Apache-2.0
"""What is done to units of systemd: a signal, freezing for a while, thawing. systemd does it, and decides who may.

The thaw is armed first: a transient timer of the same systemd, whose service thaws the unit. It needs nothing of us,
nor any rights once it is armed, and systemd has it wherever it can freeze at all. Both are in systemd's root slice,
which holds systemd itself, and so is never frozen. A control group of no unit has a guardian (``cgroup_deeds``).

Until August 2026 systemd's policy for the bus let only root call ``FreezeUnit`` and ``ThawUnit``, whatever polkit would
have said. Where the bus refuses a call, a transient service does the same, as the timer's does; polkit is asked about
that one.

Source: org.freedesktop.systemd1(5); systemd.timer(5); https://github.com/systemd/systemd/pull/43293.
"""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from sysmon_tools import cgroup_deeds, displays
from sysmon_tools.asking_bus import asking
from sysmon_tools.targets import GroupTarget
from sysmon_tools.vital import why_not
from sysmond.base.clock import SECOND_NS
from sysmond.base.timespec import format_step, parse_step
from sysmond.bus.wire.adapter import Connection, RemoteError
from sysmond.bus.wire.errors import UnavailableError
from sysmond.bus.wire.values import Variant
from sysmond.errors import Error, NotPermittedError, UsageError

FREEZE_S_MAX = 600
# Polkit may ask somebody for a password.
_ANSWER_S = 150.0
# So long a timer may take until it runs, and so often that is looked at.
_ARMED_S, _LOOK_S = 5.0, 0.05
# So long a service may take that freezes or thaws: the kernel waits for each process to leave a call.
_CARRIED_OUT_S = 30.0
_US = 1_000_000
_ACCURACY_US = 100_000
_SYSTEMD = "org.freedesktop.systemd1"
_MANAGER = (_SYSTEMD, "/org/freedesktop/systemd1", f"{_SYSTEMD}.Manager")
_PROPERTIES = "org.freedesktop.DBus.Properties"
_TRANSIENT = "ssa(sv)a(sa(sv))"
_ROOT_SLICE = "-.slice"
_SYSTEMCTL = ("/usr/bin/systemctl", "/bin/systemctl", "/run/current-system/sw/bin/systemctl")
_UNASKED = "InteractiveAuthorizationRequired"
_BARE = ("", "Access denied", "Permission denied")  # What systemd says where polkit says no.
_DENIED = ("AccessDenied", "AuthFailed", _UNASKED)
_NO_UNIT = f"{_SYSTEMD}.NoSuchUnit"
_RUNNING, _FROZEN, _ACTIVE, _WAITING = "running", "frozen", "active", "waiting"


def freezing_time_s(text: str) -> int:
    """Read for how long something is to be frozen, to seconds.

    :raises UsageError: for what is no such time.
    """
    for_ns = parse_step(text)
    if not SECOND_NS <= for_ns <= FREEZE_S_MAX * SECOND_NS:
        raise UsageError(f"{text!r}: expected 1s to {format_step(FREEZE_S_MAX * SECOND_NS)}")
    return for_ns // SECOND_NS


async def send(target: GroupTarget, number: signal.Signals) -> str:
    """Send a signal to all processes of a unit or a control group; gives what was done.

    :raises Error: where there is none. :raises NotPermittedError: where we may not.
    """
    if not target.unit:
        count = await asyncio.to_thread(cgroup_deeds.send, target.path, number)
        return f"sent {number.name} to {count} process{'es' if count > 1 else ''} of {target.name}"
    async with _systemd_of(target) as systemd:
        await systemd.ask("KillUnit", "ssi", target.unit, "all", int(number))
    return f"sent {number.name} to all of {target.name}"


async def freeze(target: GroupTarget, for_s: int) -> str:
    """Freeze a unit or a control group, after its thaw is armed; gives what was done.

    :raises Error: where it must not be frozen, or its thaw cannot be armed. :raises NotPermittedError: as ``send``.
    """
    if target.unit:
        async with _systemd_of(target) as systemd:
            await _freeze_unit(systemd, target, for_s)
    else:
        await _refuse_vital(target, target.path)
        await asyncio.to_thread(cgroup_deeds.freeze, target.path, for_s)
    return f"froze {target.name} for {format_step(for_s * SECOND_NS)}"


async def thaw(target: GroupTarget) -> str:
    """Let a unit or a control group go on; gives what was done.

    :raises Error: as ``send``. :raises NotPermittedError: as ``send``.
    """
    if target.unit:
        async with _systemd_of(target) as systemd:
            await systemd.thaw(target.unit)
    else:
        await asyncio.to_thread(cgroup_deeds.thaw, target.path)
    return f"thawed {target.name}"


def timer_of(unit: str) -> str:
    """The name of the timer that thaws a unit: one a unit, so that a second one is refused as long as it runs."""
    return f"sysmon-thaw-{_plain(unit)}.timer"


def _plain(unit: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", lambda sign: f"_{ord(sign[0]):02x}", unit)


async def _refuse_vital(target: GroupTarget, path: str) -> None:
    """:raises Error: where something is in it that must go on."""
    reason = why_not(path, cgroup_deeds.presences(), os.getpid(), await displays.holders())
    if reason:
        raise Error(f"{target.name} was not frozen: {reason}")


async def _freeze_unit(systemd: "_Systemd", target: GroupTarget, for_s: int) -> None:
    """Arm the thaw, then freeze; where that is refused, there is nothing to thaw any more."""
    path = await systemd.cgroup(target.unit)
    await _refuse_vital(target, path)
    await systemd.check(target.unit)
    await systemd.arm(target.unit, for_s)
    try:
        await _refuse_vital(target, path)  # Somebody may have been asked for a password meanwhile.
        await systemd.freeze(target.unit)
        await systemd.check_armed(target.unit)  # And between these two, too.
    except Error:
        with suppress(UnavailableError):  # Its timer is still there then.
            await systemd.undo(target.unit)
        raise


@asynccontextmanager
async def _systemd_of(target: GroupTarget) -> AsyncIterator["_Systemd"]:
    """The systemd of a unit: the machine's, or our own.

    :raises Error: where it does not answer, or is another user's.
    """
    if target.uid not in {None, os.geteuid()}:
        raise NotPermittedError(f"{target.unit}: is a unit of user {target.uid}, whose own systemd manages it")
    is_there = False
    try:
        async with asking("system" if target.uid is None else "session") as bus:
            is_there = True
            yield _Systemd(bus, is_user=target.uid is not None)
    except RemoteError as refused:
        if _is_denied(refused):
            raise NotPermittedError(f"{target.unit}: no permission: {_denial(refused)}") from None
        raise Error(f"{target.unit}: {refused.text or refused.name}") from None
    except UnavailableError as silence:
        raise Error(f"{target.unit}: {'' if is_there else 'no connection to systemd: '}{silence}") from None


def _is_denied(refused: RemoteError) -> bool:
    return refused.name.rpartition(".")[2] in _DENIED


def _denial(refused: RemoteError) -> str:
    """Why somebody may not, as one line."""
    if refused.is_of_bus:  # Its own text has who, whom and what, over several lines of a terminal.
        return "the policy of D-Bus does not let you ask for that"
    if refused.name.endswith(_UNASKED):
        return "polkit wants a password, and no agent is here to ask for it"
    if refused.text in _BARE:
        return "polkit does not let you"
    return refused.text or refused.name


class _Systemd:
    """A systemd, with the caller's own rights; polkit may ask who he is."""

    def __init__(self, connection: Connection, *, is_user: bool) -> None:
        self._connection = connection
        self._is_user = is_user

    async def ask(self, member: str, signature: str, *body: Any) -> list[Any]:  # noqa: ANN401  what D-Bus takes
        """Call a method of it."""
        return await self._connection.ask(
            _MANAGER, member, signature, body, timeout_s=_ANSWER_S, interactive=True
        )  # fmt: skip

    async def cgroup(self, unit: str) -> str:
        """The control group of a unit.

        :raises Error: where it has none.
        """
        path = str(await self._property(unit, unit.rpartition(".")[2].title(), "ControlGroup"))
        if not path:
            raise Error(f"{unit}: is not running")
        return path

    async def check(self, unit: str) -> None:
        """:raises Error: where it cannot be frozen, or is frozen already."""
        state = await self._property(unit, "Unit", "FreezerState")
        if state != _RUNNING:
            raise Error(f"{unit}: already {state}")
        if not await self._property(unit, "Unit", "CanFreeze"):
            what = "a slice can be frozen only if all its units can" if unit.endswith(".slice") else "systemd says so"
            raise Error(f"{unit}: cannot be frozen: {what}")

    async def freeze(self, unit: str) -> None:
        """Freeze."""
        await self._carry_out("FreezeUnit", "freeze", unit, _FROZEN)

    async def thaw(self, unit: str) -> None:
        """Thaw, and only then stop the timer that would."""
        await self._carry_out("ThawUnit", "thaw", unit, _RUNNING)
        await self._disarm(unit)

    async def check_armed(self, unit: str) -> None:
        """:raises Error: where nothing would thaw it any more."""
        state = ""
        with suppress(RemoteError):  # One whose time is over is gone.
            state = await self._property(timer_of(unit), "Unit", "SubState")
        if state != _WAITING:
            raise Error(f"{unit}: thawed again: its time was over before it was frozen")

    async def undo(self, unit: str) -> None:
        """Thaw where it was not frozen as it should have been; nobody is asked about what need not be done."""
        if await self._property(unit, "Unit", "FreezerState") == _RUNNING:
            await self._disarm(unit)
        else:
            await self.thaw(unit)

    async def _disarm(self, unit: str) -> None:
        try:
            await self.ask("StopUnit", "ss", timer_of(unit), "replace")
        except RemoteError as refused:  # A timer that stays thaws what runs already.
            if refused.name != _NO_UNIT and not _is_denied(refused):
                raise

    async def _carry_out(self, member: str, verb: str, unit: str, state: str) -> None:
        """Freeze or thaw by a method; where the bus keeps that from us, by a service.

        :raises Error: where it is not in that state then.
        """
        try:
            await self.ask(member, "s", unit)
        except RemoteError as refused:
            if not (refused.is_of_bus and _is_denied(refused)):
                raise
        else:
            return
        service = f"sysmon-{verb}-now-{_plain(unit)}.service"
        failed = f"{unit}: systemd could not {verb} it: journalctl -u {service}"
        await self.ask("StartTransientUnit", _TRANSIENT, service, "fail", self._service(verb, unit), [])
        try:
            async with asyncio.timeout(_CARRIED_OUT_S):
                while await self._is_there(service):  # noqa: ASYNC110  as for the timer
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise Error(failed) from None
        if await self._property(unit, "Unit", "FreezerState") != state:
            raise Error(failed)

    async def _is_there(self, unit: str) -> bool:
        try:
            await self.ask("GetUnit", "s", unit)
        except RemoteError as refused:
            if refused.name != _NO_UNIT:
                raise
            return False
        return True

    def _service(self, verb: str, unit: str) -> list[list[Any]]:
        """What a transient service is that has systemd freeze or thaw a unit.

        :raises Error: where there is no systemctl.
        """
        systemctl = next((path for path in _SYSTEMCTL if os.access(path, os.X_OK)), None)
        if systemctl is None:
            raise Error(f"{unit}: there is no {_SYSTEMCTL[0]} to {verb} it")
        words = ["systemctl", *(["--user"] if self._is_user else []), "--no-ask-password", verb, "--", unit]
        return [
            ["Description", Variant("s", f"{verb.title()} {unit}, for sysmon")],
            ["Type", Variant("s", "oneshot")],
            ["Slice", Variant("s", _ROOT_SLICE)],
            ["CollectMode", Variant("s", "inactive-or-failed")],
            ["ExecStart", Variant("a(sasb)", [[systemctl, words, False]])],
        ]

    async def arm(self, unit: str, for_s: int) -> None:
        """Start a timer whose service thaws the unit, and wait until it runs.

        :raises Error: where it does not.
        """
        unarmed = f"{unit}: the thaw could not be scheduled, so nothing was frozen"
        timer = timer_of(unit)
        service = self._service("thaw", unit)
        when = [
            ["Description", Variant("s", f"Thaw {unit}, which sysmon froze")],
            ["TimersMonotonic", Variant("a(st)", [["OnActiveSec", for_s * _US]])],
            ["AccuracyUSec", Variant("t", _ACCURACY_US)],
            ["RemainAfterElapse", Variant("b", False)],  # noqa: FBT003  a value of D-Bus
        ]
        try:
            parts = [[f"{timer.removesuffix('.timer')}.service", service]]
            await self.ask("StartTransientUnit", _TRANSIENT, timer, "fail", when, parts)
            async with asyncio.timeout(_ARMED_S):
                while await self._property(timer, "Unit", "ActiveState") != _ACTIVE:  # noqa: ASYNC110  no event says so
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise Error(f"{unarmed}: {timer} is not running") from None
        except RemoteError as refused:
            if _is_denied(refused):
                raise
            raise Error(f"{unarmed}: {refused.text or refused.name}") from None

    async def _property(self, unit: str, kind: str, name: str) -> Any:  # noqa: ANN401  what D-Bus gives
        (path,) = await self.ask("GetUnit", "s", unit)
        where = (_SYSTEMD, str(path), _PROPERTIES)
        (value,) = await self._connection.ask(where, "Get", "ss", [f"{_SYSTEMD}.{kind}", name])
        return value.value
