# SPDX-License-Identifier: Apache-2.0
"""The same answers where there is no bus: given in the process of whoever asks, with no rights but its own.

The bus part owns nothing: it reads files and asks the other parts over their sockets. So can who asks, as far as the
kernel lets them: everybody reads what is public, and root and the recorder's owner may change something.
"""

import os
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from sysmond.base.model import Sensitivity
from sysmond.bus.offer_state import offer_state
from sysmond.bus.part import TICKS_FOR_RATE, BusPart
from sysmond.bus.wire.caller import Caller
from sysmond.bus.wire.errors import UnavailableError
from sysmond.bus.wire.exports import Exports, Wanted
from sysmond.bus.wire.values import clean
from sysmond.errors import CorruptError, Error, NotPermittedError
from sysmond.machine import recorders
from sysmond.machine.folders import Folders
from sysmond.machine.lock import elsewhere
from sysmond.plan.plan import read
from sysmond.plan.settings import Settings, plan_file
from sysmond.ring.newest import Follower

LOOK_S = 1.0
_NOBODY = "no recorder is running there; 'sysmond' starts one"


class Direct:
    """A recorder, as a client of the bus part sees it.

    What only tells how it is waits for nothing, and needs no event loop; what reads values is loaded when asked for.
    """

    def __init__(self, place: Folders, *, user: bool) -> None:
        """``place``: its folders.

        :raises Error: where no recorder runs there, also where one writes to the state folder that has another runtime
            folder. :raises NotPermittedError: where we may not look.
        """
        # A state folder has a copy of the plan, and the lock of who writes to it: that alone would answer for a
        # recorder whose parts are not there.
        if said := elsewhere(place).removeprefix("; "):
            raise Error(f"{place.state}: {said}")
        self._place = place
        settings = Settings(place, user=user)
        try:
            plan = read(plan_file(settings))
        except FileNotFoundError as absence:
            raise Error(f"{place.runtime}: {_NOBODY}") from absence
        except PermissionError as refusal:
            raise NotPermittedError(f"{place.runtime}: no permission to look there") from refusal
        except (OSError, CorruptError) as damage:
            raise Error(f"{place.runtime}: {damage}") from damage
        self._check()
        self._part = BusPart(settings, plan, Exports())
        self._probes = offer_state(self._part)
        self._is_whole = False
        uid = os.geteuid()
        is_restricted = os.access(f"{place.runtime}/sampler/{Sensitivity.RESTRICTED}", os.R_OK | os.X_OK)
        self._caller = Caller("", uid, os.getpid(), tuple(os.getgroups()), is_restricted=is_restricted)

    async def answer(self, path: str, interface: str, member: str, body: list[Any]) -> list[Any]:
        """What a method answers, as D-Bus would carry it.

        :raises Error: whatever the method refuses, and where the recorder ended meanwhile.
        """
        self._check()
        self._follow_plan()
        wanted, service = Wanted(path, interface, member), self._part.service
        if not self._is_whole and not service.has(wanted):
            from sysmond.bus.offer import offer_values  # noqa: PLC0415  asyncio, and what reads rings and history

            offer_values(self._part, self._probes)
            self._is_whole = True
        return await service.answer(wanted, self._caller, body)

    async def happened(self) -> AsyncIterator[list[Any]]:
        """Events from now on, as the signal tells them: when (UTC ns), kind, subject, text.

        :raises UnavailableError: when the recorder ends.
        """
        import asyncio  # noqa: PLC0415  as above

        rings = Follower(self._place, ticks=TICKS_FOR_RATE)
        rings.read()
        rings.events()
        while True:
            await asyncio.sleep(LOOK_S)
            offset_ns = rings.read().wall_offset_ns
            for each in rings.events():
                yield [each.boottime_ns + offset_ns, clean(each.kind), clean(each.subject), clean(each.text)]
            self._check()

    async def leave(self) -> None:
        """End what was begun on behalf of who asks."""
        for end in self._part.when_left:
            await end()

    def _follow_plan(self) -> None:
        """Take the plan that is in force now: what was changed a moment ago counts."""
        with suppress(OSError, CorruptError):  # It is being replaced, or gone with its recorder.
            plan = read(plan_file(self._part.settings))
            if plan != self._part.plan:
                self._part.plan = plan
                for follow in self._part.when_planned:
                    follow()

    def _check(self) -> None:
        if not recorders.is_recording(self._place):
            raise UnavailableError(f"{self._place.runtime}: {_NOBODY}")
