# SPDX-License-Identifier: Apache-2.0
"""Holding: probes read at another interval, or the disk left alone, while a command runs or until Ctrl-C.

A hold lasts as long as a descriptor of this process is open, so it ends with us whatever happens. One that ends by
itself, as all do after an hour or with the recorder, is asked for again.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from sysmon_tools.client import Client
from sysmon_tools.command_output import interval
from sysmond.base.clock import SECOND_NS
from sysmond.base.eased_pace import BACK_MAX_S
from sysmond.base.terminal import put, say
from sysmond.base.timespec import parse_step
from sysmond.bus.holds import HOLD_S_MAX, WORDS_LENGTH_MAX
from sysmond.errors import Error, UsageError, nearest

WHO = "sysmonctl"
AGAIN_S = 10.0
# As shells say that a command was not there, could not be started, or died of a signal.
NOT_THERE, NOT_STARTED, OF_SIGNAL = 127, 126, 128


class HoldCall(NamedTuple):
    """A hold as the service is asked for it."""

    member: str
    signature: str
    body: tuple[Any, ...]


async def run(client: Client, options: argparse.Namespace) -> int:
    """Hold until the command has ended, or until interrupted; give the exit code."""
    why = (options.why or " ".join(options.run) or f"{WHO} hold")[:WORDS_LENGTH_MAX]
    wishes = list(_wishes(options, await _intervals(client) if options.names else {}, why))
    async with _Holding(client, wishes):
        if options.run:
            return await _run(options.run)
        ended = asyncio.Event()
        _obey(ended.set, ended.set)
        _announce(options)
        await ended.wait()
        return 0


async def _intervals(client: Client) -> dict[str, int]:
    """How often each probe is to be read, in ns."""
    rows = await client.call("ListProbes", "a{sv}", {})
    return {name: interval_ns for name, _, _, _, interval_ns, *_ in rows}


def _wishes(options: argparse.Namespace, planned: dict[str, int], why: str) -> Iterator[HoldCall]:
    """What is asked of the service: of probes that are read less often already, to read them more often.

    :raises UsageError: where the words mean nothing that can be asked.
    """
    if options.interval is None and not options.no_flush:
        raise UsageError("missing: --interval (how often they are read meanwhile), or --no-flush")
    if options.interval is None and options.names:
        raise UsageError("missing: --interval (how often they are read meanwhile)")
    for name in options.names:
        if name not in planned:
            raise UsageError(f"there is no probe {name!r}{nearest(name, planned)}")
    if options.interval is not None:
        wanted_ns = _interval_ns(options.interval)
        often = [name for name in options.names if planned[name] > wanted_ns]
        seldom = [name for name in options.names if planned[name] <= wanted_ns]
        if often:
            yield HoldCall("HoldRate", "astss", (often, wanted_ns, WHO, why))
        if seldom or not options.names:
            if not SECOND_NS <= wanted_ns <= BACK_MAX_S * SECOND_NS:
                of = f" for {', '.join(seldom)}" if seldom else ""
                raise UsageError(f"--interval {options.interval!r}: expected 1s to {BACK_MAX_S}s{of}")
            yield HoldCall("HoldBack", "astss", (seldom, wanted_ns, WHO, why))
    if options.no_flush:
        yield HoldCall("InhibitFlush", "ssu", (WHO, why, HOLD_S_MAX))


class _Holding:
    """Holds while something is done, each again when it has ended by itself."""

    def __init__(self, client: Client, wishes: Sequence[HoldCall]) -> None:
        """There is none yet."""
        self._client = client
        self._wishes = wishes
        self._locks: set[int] = set()
        self._renewing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> None:
        """:raises Error: where one is refused."""
        for wish in self._wishes:
            await self._begin(wish)

    async def __aexit__(self, *_: object) -> None:
        """End all."""
        for task in self._renewing:
            task.cancel()
        for lock in list(self._locks):
            self._end(lock)

    async def _begin(self, wish: HoldCall) -> None:
        lock = await self._client.lock(wish.member, wish.signature, *wish.body)
        self._locks.add(lock)
        # Nothing is ever to be read from the writing end of a pipe: it wakes us where nobody reads the other one.
        asyncio.get_running_loop().add_reader(lock, self._lapse, lock, wish)

    def _end(self, lock: int) -> None:
        self._locks.remove(lock)
        asyncio.get_running_loop().remove_reader(lock)
        os.close(lock)

    def _lapse(self, lock: int, wish: HoldCall) -> None:
        self._end(lock)
        task = asyncio.create_task(self._renew(wish))
        self._renewing.add(task)
        task.add_done_callback(self._renewing.discard)

    async def _renew(self, wish: HoldCall) -> None:
        said = False
        while True:
            try:
                return await self._begin(wish)
            except Error as refusal:
                if not said:
                    say(f"the hold has ended: {refusal}; requested again every {AGAIN_S:.0f} s", WHO)
                    said = True
                await asyncio.sleep(AGAIN_S)


def _interval_ns(text: str) -> int:
    """Read ``--interval``.

    :raises UsageError: for what is none.
    """
    try:
        return parse_step(text)
    except UsageError:
        raise UsageError(f"--interval {text!r}: expected a length of time such as 10s, from 1s to 60s") from None


def _announce(options: argparse.Namespace) -> None:
    """Say that it holds: who started us in the background waits for this line."""
    interval_ns = parse_step(options.interval) if options.interval else 0
    if options.json:
        put(json.dumps({"probes": options.names, "interval_ns": interval_ns, "no_flush": options.no_flush}))
    else:
        named = ", ".join(options.names) or "all probes"
        said = [f"{named}: read every {interval(interval_ns)}"] if interval_ns else []
        said += ["nothing written to the disk"] if options.no_flush else []
        put(f"{'; '.join(said)}; until Ctrl-C")
    sys.stdout.flush()


async def _run(command: Sequence[str]) -> int:
    """Run a command to its end, whoever interrupts it; give its exit code as a shell does."""
    try:
        child = await asyncio.create_subprocess_exec(*command)
    except FileNotFoundError:
        say(f"{command[0]}: no such command", WHO)
        return NOT_THERE
    except OSError as failure:
        say(f"{command[0]}: not started: {failure.strerror or failure}", WHO)
        return NOT_STARTED
    # A terminal interrupts the command as well; who ends us alone means both.
    _obey(lambda: None, child.terminate)
    code = await child.wait()
    return OF_SIGNAL - code if code < 0 else code


def _obey(interrupt: Callable[[], None], end: Callable[[], None]) -> None:
    """Have signals do that, but for interrupts where whoever started us ignores them."""
    loop = asyncio.get_running_loop()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end)
