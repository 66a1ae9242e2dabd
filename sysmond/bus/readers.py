# SPDX-License-Identifier: Apache-2.0
"""History on the bus: each question is answered by a reader, a process of bounded memory and time.

Where the service is root, a reader becomes the caller before it opens any recording, so that the kernel decides. Where
it is a unit that may not read what is restricted, systemd starts one that may, for a caller who may.
What it writes into lies in memory that cannot grow; an answer in bulk is sealed and handed out as a descriptor. It
counts against its caller until the last copy of that is closed: a lease tells (fcntl(2), F_SETLEASE).
"""

import array
import asyncio
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.base.timespec import reversed_range
from sysmond.bus.latest import Latest
from sysmond.bus.question import HistoryQuestion
from sysmond.bus.wire import errors
from sysmond.bus.wire.caller import Caller
from sysmond.bus.wire.errors import InvalidArgumentError, LimitError, OccupiedError, RefusedError
from sysmond.bus.wire.interface import CallContext, Interface, Options, method, read_options
from sysmond.bus.wire.names import MANAGER
from sysmond.bus.wire.values import Variant, clean
from sysmond.errors import UsageError
from sysmond.machine import memory
from sysmond.machine.folders import Folders
from sysmond.plan.settings import isolation

PROGRAM = "sysmond.bus.reader"
# In the runtime folder of an installed service: the socket of one who may read what is restricted.
RESTRICTED_READER = "reader"

READERS_PER_USER_MAX = 4
READERS_PER_SECOND_MAX = 20
# One user's must not be all that start.
READERS_PER_USER_AND_SECOND_MAX = 8
RATE_SPAN_S = 1.0
ANSWER_BYTES_PER_USER_MAX = 64 * 1024 * 1024
ANSWERS_PER_USER_MAX = 64
QUERY_BYTES_MAX = ANSWER_BYTES_PER_USER_MAX // READERS_PER_USER_MAX
# A message has up to 256 KiB: numbers, their names, gaps.
NUMBERS_BYTES_MAX = 160 * 1024
NAMES_BYTES_MAX = 48 * 1024
QUERY_NAMES_BYTES_MAX = 200 * 1024
# Gaps, paths and warnings beside the numbers.
DOCUMENT_BYTES_MAX = 1024 * 1024
PROCESSOR_S = 15
ANSWER_S = 20.0
RESOLUTION_MAX = 10_000
STEP_NS_MAX = 366 * 24 * 3600 * SECOND_NS

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", **memory.QUIET_LIBRARIES}
_REFUSALS = {
    error.bus_name.rpartition(".")[2]: error
    for error in (errors.InvalidArgumentError, errors.LimitError, errors.NotAuthorizedError, errors.RefusedError)
}


_TEXT = "text"
# What GetRows may be told beside its range.
_ROWS_OPTIONS = {
    "columns": "as", "where": "s", "group_by": "as", "by": "s", "top": "u", "percentile": "d", "statistics": "as",
    "last_ns": "t", "boot": "s", "drop": "as", "summary": "b", "raw": "b", "explain": "b",
}  # fmt: skip
LAST_NS_MAX = 24 * 3600 * SECOND_NS

# Path, statistic, unit, source, formula, resampling; tier, step and range of what answered; cause, number and length.
_EXPLANATION = "(ssssssa(stxx)a(stt))"

Column = tuple[str, str, str, list[float]]
_Lines = Sequence[Sequence[Any]]
GapRow = tuple[object, ...]
BudgetRow = tuple[str, int, int, float, float]


class Reply(NamedTuple):
    """What a reader said, and its numbers: a descriptor of ours, to be closed."""

    document: dict[str, Any]
    bulk: int


class _Account:
    """What one user has under way, and which answers are open."""

    def __init__(self) -> None:
        self.open = 0
        self.granted_bytes = 0
        self.started: deque[float] = deque(maxlen=READERS_PER_USER_AND_SECOND_MAX)
        self.answers: list[tuple[int, int]] = []  # A descriptor of each answer that is out, and its size.

    def answer_bytes(self) -> int:
        """How many bytes of answers are still open elsewhere; others are closed."""
        still = []
        for descriptor, size in self.answers:
            if _is_open_elsewhere(descriptor):
                still.append((descriptor, size))
            else:
                os.close(descriptor)
        self.answers = still
        return sum(size for _, size in still)

    @property
    def is_idle(self) -> bool:
        """Whether it may be forgotten."""
        is_quiet = not self.started or time.monotonic() - self.started[-1] >= RATE_SPAN_S
        return not self.open and not self.answers and is_quiet

    @property
    def is_hasty(self) -> bool:
        """Whether it had as many readers started lately as it may."""
        is_full = len(self.started) == READERS_PER_USER_AND_SECOND_MAX
        return is_full and time.monotonic() - self.started[0] < RATE_SPAN_S


class Readers:
    """Starts readers, within bounds a user and in all."""

    def __init__(self, folders: Folders) -> None:
        """Of the history in these folders."""
        self._folders = folders
        self._accounts: dict[int, _Account] = {}
        self._started: deque[float] = deque(maxlen=READERS_PER_SECOND_MAX)

    async def ask(self, caller: Caller, do: str, bytes_max: int, **asked: object) -> Reply:
        """Have one question answered: ``do`` and what it needs, as ``HistoryQuestion`` has it.

        :raises RefusedError: with the kind and the reason that the reader gave. :raises LimitError: where the
            caller has too much under way or open, or it took too long. :raises OccupiedError: where all callers have.
        """
        account = self._admit(caller.uid, bytes_max)
        question = HistoryQuestion(
            do=do,
            state=self._folders.state,
            runtime=self._folders.runtime,
            classes=[str(sensitivity) for sensitivity in caller.sensitivities],
            bytes_max=bytes_max,
            uid=caller.uid if os.geteuid() == 0 else None,
            gids=caller.gids,
        )._replace(**asked)  # type: ignore[arg-type]
        account.open += 1
        account.granted_bytes += bytes_max
        bulk = _memory("sysmond-numbers", bytes_max)
        try:
            document = await _ask_reader(question, bulk)
        except BaseException:
            os.close(bulk)
            raise
        finally:
            account.open -= 1
            account.granted_bytes -= bytes_max
            self._forget_idle(caller.uid)
        return Reply(document, bulk)

    def hand_out(self, caller: Caller, bulk: int, size: int) -> int:
        """Seal an answer of so many bytes and give a descriptor to read it; ``bulk`` is closed."""
        try:
            os.ftruncate(bulk, size)
            fcntl.fcntl(bulk, fcntl.F_ADD_SEALS, _SEALS)
            # Another open file of the same memory: a lease on the first tells when the second is closed.
            leased, given = (os.open(f"/proc/self/fd/{bulk}", os.O_RDONLY | os.O_CLOEXEC) for _ in range(2))
        finally:
            os.close(bulk)
        self._accounts.setdefault(caller.uid, _Account()).answers.append((leased, size))
        return given

    def _admit(self, uid: int, bytes_max: int) -> _Account:
        account = self._accounts.get(uid) or _Account()
        if account.open >= READERS_PER_USER_MAX:
            raise LimitError(f"uid {uid} has {account.open} readers at work; expected up to {READERS_PER_USER_MAX}")
        answer_bytes = account.answer_bytes()
        wanted_bytes = answer_bytes + account.granted_bytes + bytes_max
        if wanted_bytes > ANSWER_BYTES_PER_USER_MAX or len(account.answers) >= ANSWERS_PER_USER_MAX:
            raise LimitError(
                f"uid {uid} holds {len(account.answers)} answers of {answer_bytes} bytes; close their descriptors"
            )
        if account.is_hasty:
            raise LimitError(
                f"uid {uid} had {len(account.started)} readers started within {RATE_SPAN_S:.0f} s; try again later"
            )
        now_s = time.monotonic()
        if len(self._started) == READERS_PER_SECOND_MAX and now_s - self._started[0] < RATE_SPAN_S:
            raise OccupiedError(
                f"{READERS_PER_SECOND_MAX} readers were started within {RATE_SPAN_S:.0f} s; try again later"
            )
        self._started.append(now_s)
        account.started.append(now_s)
        self._accounts[uid] = account
        return account

    def _forget_idle(self, uid: int) -> None:
        for idle_uid in [other for other, account in self._accounts.items() if account.is_idle and other != uid]:
            del self._accounts[idle_uid]


async def _ask_reader(question: HistoryQuestion, bulk: int) -> dict[str, Any]:
    said = _memory("sysmond-answer", DOCUMENT_BYTES_MAX)
    asked = os.memfd_create("sysmond-question", os.MFD_CLOEXEC)
    try:
        os.write(asked, json.dumps(question._asdict()).encode())
        os.lseek(asked, 0, os.SEEK_SET)
        elsewhere = f"{question.runtime}/{RESTRICTED_READER}"
        if Sensitivity.RESTRICTED in question.classes and os.access(elsewhere, os.W_OK) and os.geteuid():
            await _hand_over(elsewhere, [asked, said, bulk])
            code = 0
        else:
            reader = _start(asked, said, bulk)
            await _wait_for_end(reader)
            code = reader.returncode
        return _parse(os.pread(said, DOCUMENT_BYTES_MAX, 0).rstrip(b"\0"), code)
    finally:
        os.close(said)
        os.close(asked)


async def _hand_over(elsewhere: str, descriptors: list[int]) -> None:
    """Have the reader behind a socket answer, and wait for its end. Its bounds are those of its unit."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as asking:
        try:
            asking.connect(elsewhere)
            socket.send_fds(asking, [b"?"], descriptors)
        except OSError as failure:
            raise RefusedError(f"no reader could be started: {failure}") from failure
        try:
            async with asyncio.timeout(ANSWER_S):
                with suppress(ConnectionError):
                    await asyncio.get_running_loop().sock_recv(asking, 1)  # It says nothing but that it has ended.
        except TimeoutError as slow:
            raise LimitError(f"it took longer than {ANSWER_S:.0f} s; ask for a shorter range or fewer paths") from slow


def _start(asked: int, said: int, bulk: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603  our own program
            [sys.executable, *isolation(), "-m", PROGRAM, str(bulk)],
            stdin=asked,
            stdout=said,
            stderr=subprocess.DEVNULL,
            pass_fds=[bulk],
            cwd="/",
            env={**_ENVIRONMENT, "PATH": os.environ.get("PATH", os.defpath)},
        )
    except (OSError, subprocess.SubprocessError) as failure:
        raise RefusedError(f"no reader could be started: {failure}") from failure


async def _wait_for_end(reader: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a reader, and end it where it takes too long or nobody waits any more."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        memory.bound(reader.pid)
        resource.prlimit(reader.pid, resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
        resource.prlimit(reader.pid, resource.RLIMIT_CORE, (0, 0))
    watch = os.pidfd_open(reader.pid)
    ended: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    loop.add_reader(watch, end)
    try:
        async with asyncio.timeout(ANSWER_S):
            await ended
    except TimeoutError as slow:
        raise LimitError(f"it took longer than {ANSWER_S:.0f} s; ask for a shorter range or fewer paths") from slow
    finally:
        loop.remove_reader(watch)
        os.close(watch)
        if reader.poll() is None:
            reader.kill()
            reader.wait()


def _parse(said: bytes, exit_code: int) -> dict[str, Any]:
    """Read what a reader said: it may be the caller's own process, so nothing of it is taken on trust."""
    if exit_code in {-signal.SIGXCPU, -signal.SIGKILL}:
        raise LimitError(f"it took more than {PROCESSOR_S} s of processor time; ask for a shorter range")
    try:
        document = json.loads(said)
    except (ValueError, RecursionError) as nonsense:
        raise RefusedError(f"the reader ended with code {exit_code} and no answer") from nonsense
    if not isinstance(document, dict):
        raise RefusedError("the reader's answer is none")
    if "error" in document:
        raise _REFUSALS.get(str(document["error"]), RefusedError)(str(document.get("text")))
    return document


def _memory(name: str, size: int) -> int:
    """A file in memory of a size that it cannot exceed; what is not written takes no room."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    return descriptor


def _is_open_elsewhere(descriptor: int) -> bool:
    """Whether anybody else has the same file open: only where nobody has, a lease to write is given."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # By default a lease that is broken kills.
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        return False  # A kernel without leases: then what is out is not counted.
    return False


class History(Interface):
    """What was recorded, for whoever asks."""

    NAME = MANAGER

    def __init__(self, readers: Readers, latest: Latest) -> None:
        """``readers``: who answer. ``latest``: knows what is restricted."""
        self._readers = readers
        self._latest = latest

    @method("options:a{sv}", "tiers:a(sttdd)")
    async def get_budget(self, request: CallContext, options: Options) -> list[BudgetRow]:
        """By tier: budget and use in bytes, bytes a day, days that it keeps; NaN where that is unknown yet."""
        read_options(options, {})
        # Sizes of what is restricted are among them, and no rows: a service that may read those tells everybody.
        reply = await self._readers.ask(request.caller, "budget", 0, uid=None)
        os.close(reply.bulk)
        nan = float("nan")
        return [
            (
                tier,
                forecast["budget_bytes"],
                forecast["used_bytes"],
                nan if forecast["bytes_per_day"] is None else float(forecast["bytes_per_day"]),
                nan if forecast["days"] is None else float(forecast["days"]),
            )
            for tier, forecast in reply.document["tiers"].items()
        ]

    @method(
        "paths:as start_ns:x end_ns:x step_ns:t statistics:as options:a{sv}",
        "times_ns:ax columns:a(sssad) gaps:a(xxsss) further:a{sv}",
    )
    async def history(
        self,
        request: CallContext,
        paths: list[str],
        start_ns: int,
        end_ns: int,
        step_ns: int,
        statistics: list[str],
        options: Options,
    ) -> tuple[list[int], list[Column], list[GapRow], dict[str, Variant]]:
        """Columns over one time axis, and why there is nothing where there is nothing."""
        asked = _question_fields(paths, start_ns, end_ns, step_ns, statistics, options)
        try:
            document, bulk = await self._ask(
                request.caller, "query", NUMBERS_BYTES_MAX, described_bytes_max=NAMES_BYTES_MAX, **asked
            )
        except LimitError as refusal:
            raise LimitError(f"{refusal}; Query gives up to {QUERY_BYTES_MAX} bytes") from refusal
        try:
            content = os.pread(bulk, NUMBERS_BYTES_MAX, 0)
        finally:
            os.close(bulk)
        layout = _Layout(document)
        times = _numbers("q", content, 0, layout.rows)
        columns = [
            (path, stat, unit, _numbers("d", content, 1 + index, layout.rows))
            for index, (path, stat, unit) in enumerate(layout.columns)
        ]
        return times, columns, layout.gaps, layout.further()

    @method("paths:as start_ns:x end_ns:x step_ns:t statistics:as options:a{sv}", "numbers:h layout:a{sv}")
    async def query(
        self,
        request: CallContext,
        paths: list[str],
        start_ns: int,
        end_ns: int,
        step_ns: int,
        statistics: list[str],
        options: Options,
    ) -> tuple[int, dict[str, Variant]]:
        """The same in a sealed file in memory: the times, then each column."""
        asked = _question_fields(paths, start_ns, end_ns, step_ns, statistics, options)
        document, bulk = await self._ask(
            request.caller, "query", QUERY_BYTES_MAX, described_bytes_max=QUERY_NAMES_BYTES_MAX, **asked
        )
        try:
            layout = _Layout(document)
        except BaseException:
            os.close(bulk)
            raise
        descriptor = self._readers.hand_out(request.caller, bulk, layout.size_bytes)
        return descriptor, {
            "rows": Variant("t", layout.rows),
            "columns": Variant("a(sss)", layout.columns),
            "gaps": Variant("a(xxsss)", layout.gaps),
            **layout.further(),
        }

    @method(
        "table:s start_ns:x end_ns:x step_ns:t options:a{sv}",
        "times_ns:ax columns:a(sssv) gaps:a(xxsss) further:a{sv}",
    )
    async def get_rows(
        self, request: CallContext, table: str, start_ns: int, end_ns: int, step_ns: int, options: Options
    ) -> tuple[list[int], list[tuple[str, str, str, Variant]], list[GapRow], dict[str, Variant]]:
        """Rows of a table, wide or long, and why there is nothing where there is nothing."""
        asked = _rows_fields(table, start_ns, end_ns, step_ns, options)
        document, bulk = await self._ask(
            request.caller, "rows", NUMBERS_BYTES_MAX, described_bytes_max=NAMES_BYTES_MAX, **asked
        )
        try:
            content = os.pread(bulk, NUMBERS_BYTES_MAX, 0)
        finally:
            os.close(bulk)
        layout = _RowsLayout(document)
        times = _numbers("q", content, 0, layout.rows)
        columns: list[tuple[str, str, str, Variant]] = []
        place = 0
        for name, stat, unit, texts in layout.columns_with_texts():
            if texts is None:
                place += 1
                values = Variant("ad", _numbers("d", content, place, layout.rows))
            else:
                values = Variant("as", texts)
            columns.append((name, stat, unit, values))
        return times, columns, layout.gaps, layout.further()

    @method("path:s timespan:u resolution:u", "data:a(udu)")
    async def get_history(
        self, request: CallContext, path: str, timespan: int, resolution: int
    ) -> list[tuple[int, float, int]]:
        """One series as UPower tells it: so many seconds back (0: all), in about so many points."""
        if not 1 <= resolution <= RESOLUTION_MAX:
            raise InvalidArgumentError(f"resolution {resolution}: expected 1 to {RESOLUTION_MAX} points")
        asked = {"paths": [path], "timespan_s": timespan, "resolution": resolution}
        document = await self._document(request, "points", **asked)
        return [(int(at_s), float(value), int(state)) for at_s, value, state in document["points"]]

    @method("options:a{sv}", "boots:a(sxx)")
    async def list_boots(self, request: CallContext, options: Options) -> list[tuple[str, int, int]]:
        """The boots that were recorded, oldest first: id, first and last tick."""
        read_options(options, {})
        document = await self._document(request, "boots")
        return [(str(boot), int(start_ns), int(end_ns)) for boot, start_ns, end_ns in document["boots"]]

    @method("start_ns:x end_ns:x options:a{sv}", "events:a(xsss)")
    async def get_events(
        self, request: CallContext, start_ns: int, end_ns: int, options: Options
    ) -> list[tuple[int, str, str, str]]:
        """What happened, in order; the newest thousand: time, kind, subject, text."""
        read_options(options, {})
        document = await self._document(request, "events", start_ns=start_ns, end_ns=end_ns)
        return [(int(at_ns), *(clean(str(text)) for text in said)) for at_ns, *said in document["events"]]  # type: ignore[misc]

    async def _ask(self, caller: Caller, do: str, bytes_max: int, **asked: object) -> Reply:
        """Have a question answered; where it means what the caller may not see, say so."""
        given = asked.get("paths")
        named = given if isinstance(given, list) else [str(asked["table"])] if "table" in asked else []
        asked["has_rows"] = do == "rows" or any(map(self._latest.is_long, named))
        try:
            return await self._readers.ask(caller, do, bytes_max, **asked)
        except LimitError:
            raise
        except RefusedError:
            for path in named:
                with suppress(UsageError):  # What is no path at all was the reason.
                    if refusal := self._latest.refusal(path, caller.sensitivities):
                        raise refusal from None
            raise

    async def _document(self, request: CallContext, do: str, **asked: object) -> dict[str, Any]:
        document, bulk = await self._ask(request.caller, do, 0, **asked)
        os.close(bulk)
        return document


class _Layout:
    """What a reader says beside its numbers."""

    def __init__(self, document: dict[str, Any]) -> None:
        """Take it as types.

        :raises RefusedError: where it makes no sense.
        """
        try:
            self.rows = int(document["rows"])
            self.columns = [(clean(path), str(stat), str(unit)) for path, stat, unit in document["columns"]]
            self.gaps: list[GapRow] = [
                (int(start_ns), int(end_ns), str(table), str(cause), clean(detail))
                for start_ns, end_ns, table, cause, detail in document["gaps"]
            ]
            self._step_ns = int(document["step_ns"])
            self._gaps_left_out = int(document["gaps_left_out"])
            self._texts = [clean(path) for path in document.get("texts", ())]
            self._warnings = [clean(warning) for warning in document["warnings"]]
        except (KeyError, TypeError, ValueError, AttributeError) as nonsense:
            raise RefusedError("the reader's answer is none") from nonsense
        self.size_bytes = self.rows * 8 * (1 + len(self.columns))
        if not 0 <= self.size_bytes <= QUERY_BYTES_MAX:
            raise RefusedError("the reader's answer is none")

    def further(self) -> dict[str, Variant]:
        """What else there is to say."""
        further = {"step_ns": Variant("t", self._step_ns)}
        if self._gaps_left_out:
            further["gaps_left_out"] = Variant("u", self._gaps_left_out)
        if self._texts:
            further["texts"] = Variant("as", self._texts)
        if self._warnings:
            further["warnings"] = Variant("as", self._warnings)
        return further


class _RowsLayout(_Layout):
    """The same of rows, whose texts are there."""

    def __init__(self, document: dict[str, Any]) -> None:
        """Take it as types.

        :raises RefusedError: where it makes no sense.
        """
        super().__init__(document)
        try:
            self._words = [[clean(text or "") for text in column] for column in document["words"]]
            self._notes = [clean(note) for note in document["notes"]]
            self._explanations = [_explanation(column) for column in document["explanations"]]
        except (KeyError, TypeError, ValueError, AttributeError) as nonsense:
            raise RefusedError("the reader's answer is none") from nonsense
        is_text = [unit == _TEXT for _, _, unit in self.columns]
        if sum(is_text) != len(self._words) or any(len(column) != self.rows for column in self._words):
            raise RefusedError("the reader's answer is none")

    def further(self) -> dict[str, Variant]:
        """What else there is to say."""
        further = super().further()
        if self._notes:
            further["notes"] = Variant("as", self._notes)
        if self._explanations:
            further["explanations"] = Variant(f"a{_EXPLANATION}", self._explanations)
        return further

    def columns_with_texts(self) -> Iterator[tuple[str, str, str, list[str] | None]]:
        """Each column: name, statistic, unit, and its texts; None where it has numbers."""
        words = iter(self._words)
        for name, stat, unit in self.columns:
            yield name, stat, unit, next(words) if unit == _TEXT else None


def _explanation(column: Sequence[Any]) -> tuple[object, ...]:
    """How a column came about, as types.

    :raises TypeError: where it is none. :raises ValueError: for numbers that a message cannot hold.
    """
    *said, answered, gaps = column
    path, stat, unit, origin, formula, resampling = map(clean, said)
    parts = [
        (clean(tier), _unsigned(step_ns), int(start_ns), int(end_ns)) for tier, step_ns, start_ns, end_ns in answered
    ]
    lacking = [(clean(cause), _unsigned(number), _unsigned(total_ns)) for cause, number, total_ns in gaps]
    return path, stat, unit, origin, formula, resampling, parts, lacking


def _unsigned(number: Any) -> int:  # noqa: ANN401  what a reader said
    """A number that a message can hold.

    :raises ValueError: for one that it cannot.
    """
    if not 0 <= int(number) < 2**63:
        raise ValueError(number)
    return int(number)


def _rows_fields(table: str, start_ns: int, end_ns: int, step_ns: int, options: Options) -> dict[str, object]:
    given = read_options(options, _ROWS_OPTIONS)
    last_ns = int(given.get("last_ns", 0))
    if last_ns and (start_ns or end_ns):
        raise InvalidArgumentError("last_ns is up to now; expected start_ns and end_ns of 0 with it")
    if last_ns > LAST_NS_MAX:
        raise InvalidArgumentError(f"last_ns {last_ns}; expected up to {LAST_NS_MAX}, a day")
    statistics = given.pop("statistics", [])
    boot = given.pop("boot", "")
    asked = _question_fields([table], start_ns, end_ns, step_ns, statistics, {})
    return {**asked, **given, "table": table, "boot": boot}


def _question_fields(
    paths: Sequence[str], start_ns: int, end_ns: int, step_ns: int, statistics: Sequence[str], options: Options
) -> dict[str, object]:
    if not paths:
        raise InvalidArgumentError("no path; expected one at least, '*' for all")
    if end_ns and end_ns <= start_ns:
        raise InvalidArgumentError(reversed_range(start_ns, end_ns))
    if step_ns > STEP_NS_MAX:
        raise InvalidArgumentError(f"step {step_ns} ns; expected up to {STEP_NS_MAX} ns, a year")
    boot = read_options(options, {"boot": "s"}).get("boot", "")
    return {
        "paths": list(paths),
        "start_ns": start_ns,
        "end_ns": end_ns,
        "step_ns": step_ns,
        "stats": list(statistics),
        "boot": boot,
    }


def _numbers(kind: str, content: bytes, index: int, rows: int) -> list[Any]:
    numbers = array.array(kind, content[index * rows * 8 : (index + 1) * rows * 8])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()
