# SPDX-License-Identifier: Apache-2.0
"""A reader: a process that answers one question about history, and ends.

``python -m sysmond.bus.reader BULK``: the question is JSON on standard input, the answer JSON on standard output; both
are files in memory, as is the descriptor BULK for the numbers: the times (int64, UTC nanoseconds), then each column
(float64, NaN where absent), little endian. Without BULK, standard input is a socket over which these three descriptors
come: so the bus part of an installed service, which may not read what is restricted, asks somebody who may.

Where the service is root, it becomes whoever asks before it opens any recording, so that the kernel decides; the
program is loaded before that, and nobody may look into it who could not before. Whoever starts it bounds its memory and
its time.
"""

import codecs
import json
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.bus.question import HistoryQuestion
from sysmond.errors import Error, NotPermittedError, UsageError
from sysmond.machine.folders import SYSTEM_RUNTIME, SYSTEM_STATE, Folders

if TYPE_CHECKING:
    from sysmond.base.result import Column, Entry, Explanation, Float64Array, Int64Array, LongEntry, Result
    from sysmond.history import Archive

NICENESS = 10
# Descriptors: of the question, the answer, and the numbers.
HANDED_OVER = 3
# The group of who has none (nogroup).
NOBODY = 65534
# What an answer has beside the numbers: of more than this the newest.
GAPS_BYTES_MAX = 32 * 1024
EVENTS_BYTES_MAX = 240 * 1024
EVENTS_MAX = 1000
WARNINGS_MAX = 20
TEXT_LENGTH_MAX = 200
# What an event, a gap or a column takes in a message beside its words.
_STRUCT_BYTES = 32
# And a text, beside its letters.
_TEXT_BYTES = 8

Answer = dict[str, Any]


class TooLargeError(Error):
    """The answer has more bytes than were granted."""


def query(question: HistoryQuestion, archive: "Archive", bulk: int) -> Answer:
    """Columns over one time axis, and why there is nothing where there is nothing."""
    result = archive.select(
        *question.paths,
        start=question.start_ns or None,
        end=question.end_ns or None,
        step=question.step_ns or None,
        stat=list(question.stats) or "mean",
        boot=question.boot or None,
    )
    columns = [column for column in result.columns if column.texts is None]
    rows = len(result.times_ns)
    size = rows * 8 * (1 + len(columns))
    if size > question.bytes_max:
        raise TooLargeError(
            f"{len(columns)} columns of {rows} rows are {size} bytes; expected up to {question.bytes_max}: "
            "a longer step, a shorter range or fewer paths"
        )
    described = [[column.path, column.stat, column.unit] for column in columns]
    texts = sorted({column.path for column in result.columns if column.texts is not None})
    size = sum(map(_size, described)) + sum(len(path) + _STRUCT_BYTES for path in texts)
    if size > question.described_bytes_max:
        raise TooLargeError(
            f"{len(columns)} columns have {size} bytes of names; expected up to {question.described_bytes_max}: "
            "fewer paths or statistics"
        )
    _write(bulk, result.times_ns, [column.values for column in columns])
    return {"rows": rows, "columns": described, "texts": texts, **_beside(result)}


def rows(question: HistoryQuestion, archive: "Archive", bulk: int) -> Answer:
    """Rows of a table: numbers in bulk, in order of the columns; texts beside them, None where there is none."""
    now_ns = time.time_ns()
    result = archive.records(
        question.table,
        start=(now_ns - question.last_ns if question.last_ns else question.start_ns) or None,
        end=question.end_ns or None,
        step=question.step_ns or None,
        columns=list(question.columns),
        where=question.where,
        group_by=list(question.group_by),
        by=question.by,
        top=question.top,
        percentile=question.percentile,
        boot=question.boot or None,
        stat=list(question.stats) or None,
        drop=list(question.drop),
        summary=question.summary,
        raw=question.raw,
        explain=question.explain,
    )
    number = len(result.times_ns)
    numbers = [column for column in result.columns if column.texts is None]
    texts = [column.texts for column in result.columns if column.texts is not None]
    size = number * 8 * (1 + len(numbers))
    described = [[column.path, column.stat, column.unit] for column in result.columns]
    letters = (len((text or "").encode("utf-8", "replace")) for column in texts for text in column)
    explained = [_explained(explanation) for explanation in result.explanations]
    words = sum(map(_size, described)) + sum(_TEXT_BYTES + length for length in letters)
    words += sum(_size(each) + _STRUCT_BYTES * (len(each[-1]) + len(each[-2])) for each in explained)
    if size > question.bytes_max or words > question.described_bytes_max:
        raise TooLargeError(
            f"{number} rows are {size} bytes of numbers and {words} of names and texts; expected up to "
            f"{question.bytes_max} and {question.described_bytes_max}: fewer columns, a condition, or top"
        )
    _write(bulk, result.times_ns, [column.values for column in numbers])
    told = {"explanations": explained, "notes": [note[:TEXT_LENGTH_MAX] for note in result.notes[:WARNINGS_MAX]]}
    return {"rows": number, "columns": described, "words": texts, **told, **_beside(result)}


def _explained(column: "Explanation") -> list[Any]:
    """How a column came about: texts, then which tiers answered, and what was missing, by cause."""
    said = [column.path, column.stat, column.unit, column.origin, column.formula, column.resampling]
    answered = [[part.tier, part.step_ns, part.start_ns, part.end_ns] for part in column.answered]
    return [*said, answered, [[str(gap.cause), gap.number, gap.total_ns] for gap in column.gaps]]


def _write(bulk: int, times_ns: "Int64Array", columns: "Sequence[Float64Array]") -> None:
    """Write the times (int64[row]) and then each column (float64[row])."""
    with os.fdopen(os.dup(bulk), "wb") as file:
        file.write(times_ns.astype("<i8").tobytes())
        for values in columns:
            file.write(values.astype("<f8").tobytes())


def _beside(result: "Result") -> Answer:
    """What an answer has beside its columns."""
    gaps = [[gap.start_ns, gap.end_ns, gap.table, str(gap.cause), gap.detail[:TEXT_LENGTH_MAX]] for gap in result.gaps]
    newest = _newest(gaps, GAPS_BYTES_MAX)
    return {
        "step_ns": result.step_ns,
        "gaps": newest,
        "gaps_left_out": len(gaps) - len(newest),
        "warnings": [warning[:TEXT_LENGTH_MAX] for warning in result.warnings[:WARNINGS_MAX]],
    }


def _size(values: Sequence[object]) -> int:
    """About how many bytes a struct takes in a message."""
    words = (value for value in values if isinstance(value, str))
    return _STRUCT_BYTES + sum(len(word.encode("utf-8", "replace")) for word in words)


def _newest(rows: Sequence[list[object]], bytes_max: int) -> list[list[object]]:
    """The last of them, as many as find room."""
    left, begin = bytes_max, len(rows)
    while begin and (left := left - _size(rows[begin - 1])) >= 0:
        begin -= 1
    return list(rows[begin:])


def points(question: HistoryQuestion, archive: "Archive", bulk: int) -> Answer:  # noqa: ARG001  all are called alike
    """One series as points in time, about as many as asked for: seconds, value, and whether there is one.

    A hole is one point without a value, where it begins.
    """
    [path] = question.paths
    entries: list[Entry] | list[LongEntry]
    try:
        entries = archive.catalogue(path)
    except UsageError:
        table = path.partition("/")[0]
        entries = [entry for entry in archive.long_tables(table) if entry.path == table]
        if not entries:
            raise
    if len(entries) != 1:
        raise UsageError(f"path {path!r}: matches {len(entries)} series; expected exactly one")
    [entry] = entries
    now_ns = time.time_ns()
    start_ns = now_ns - question.timespan_s * SECOND_NS if question.timespan_s else entry.start_ns
    interval_ns = max(entry.interval_ns, SECOND_NS)
    # Rounded up to whole intervals: a bucket without a tick would be a hole that is none.
    step_ns = -(-max(1, now_ns - start_ns) // (question.resolution * interval_ns)) * interval_ns
    columns: tuple[Column, ...] = ()
    with suppress(UsageError):  # Nothing in this span.
        result = archive.select(path, start=start_ns, step=step_ns)
        columns = result.columns
    if len(columns) > 1:
        raise UsageError(f"path {path!r}: matches {len(columns)} series; expected exactly one")
    if not columns or columns[0].texts is not None:
        return {"points": []}
    [column] = columns
    samples: list[tuple[int, float, int]] = []
    for time_ns, value in zip(result.times_ns.tolist(), column.values.tolist(), strict=True):
        is_there = not math.isnan(value)
        if is_there or (samples and samples[-1][2]):
            samples.append((max(0, time_ns // SECOND_NS), value if is_there else 0.0, int(is_there)))
    return {"points": samples}


def events(question: HistoryQuestion, archive: "Archive", bulk: int) -> Answer:  # noqa: ARG001  all are called alike
    """What happened: the newest of it, as far as an answer holds it."""
    from sysmond.base.timespec import FOREVER_NS  # noqa: PLC0415  see answer

    recorded = archive.events(question.start_ns or -FOREVER_NS, question.end_ns or FOREVER_NS)
    return {"events": _newest([list(event[:4]) for event in recorded[-EVENTS_MAX:]], EVENTS_BYTES_MAX)}


def boots(question: HistoryQuestion, archive: "Archive", bulk: int) -> Answer:  # noqa: ARG001  all are called alike
    """The boots that were recorded."""
    return {"boots": [list(boot) for boot in archive.boots()]}


def budget(question: HistoryQuestion, archive: "Archive", bulk: int) -> Answer:  # noqa: ARG001  all are called alike
    """What each tier takes and keeps."""
    from sysmond.commands import upkeep  # noqa: PLC0415  seldom asked for

    return {"tiers": upkeep.forecasts(Folders(question.state, question.runtime))}


QUESTIONS: dict[str, Callable[[HistoryQuestion, "Archive", int], Answer]] = {
    "query": query,
    "rows": rows,
    "events": events,
    "boots": boots,
    "points": points,
    "budget": budget,
}


def become(uid: int | None, gids: Sequence[int]) -> None:
    """Become a user, where that is wanted; there is no way back."""
    if uid:
        os.setgroups(gids)
        gid = gids[0] if gids else NOBODY
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


def answer(question: HistoryQuestion, bulk: int) -> Answer:
    """Answer, or say under which name what is wrong."""
    try:
        # Within the bounds that others set meanwhile; all of it, for who it becomes may not read our program.
        codecs.lookup("ascii")
        import difflib  # noqa: F401, PLC0415  see above

        from sysmond.answers import event_rows, wide  # noqa: F401, PLC0415  see above
        from sysmond.history import Archive  # noqa: PLC0415  see above
        from sysmond.plan import plan  # noqa: F401, PLC0415  see above
        from sysmond.store.files import dense_file, sparse_file  # noqa: F401, PLC0415  see above

        if question.do == "budget":
            from sysmond.commands import upkeep  # noqa: F401, PLC0415  see above
        if question.has_rows:
            from sysmond.answers import long_series, records, wide_rows  # noqa: F401, PLC0415  see above

        become(question.uid, question.gids)
        classes = [Sensitivity(name) for name in question.classes]
        archive = Archive(Folders(question.state, question.runtime), classes=classes)
        return QUESTIONS[question.do](question, archive, bulk)
    except Exception as failure:  # noqa: BLE001  whatever it is, the answer says so
        return {"error": _named(failure), "text": _line(failure)}


def _named(failure: Exception) -> str:
    match failure:
        case TooLargeError() | MemoryError():
            return "TooMuch"
        case UsageError():
            return "InvalidArgument"
        case NotPermittedError():
            return "NotAuthorized"
        case _:
            return "Failed"


def _line(failure: Exception) -> str:
    match failure:
        case MemoryError():
            return "it takes more memory than a reader may have; ask for a shorter range or fewer paths"
        case Error():
            return str(failure)
        case _:
            return f"{type(failure).__name__}: {failure}"


def main() -> int:
    """Read the question, answer it, end."""
    if len(sys.argv) > 1:
        os.nice(NICENESS)
        question = HistoryQuestion(**json.load(sys.stdin))
        json.dump(answer(question, int(sys.argv[1])), sys.stdout)
        return 0
    # Who asks sees when the last copy of the socket is closed: at the end of this process.
    asking = socket.socket(fileno=sys.stdin.fileno())
    _, (asked, said, bulk), _, _ = socket.recv_fds(asking, 1, HANDED_OVER)
    with os.fdopen(asked) as file:
        question = HistoryQuestion(**json.load(file))
    # Only of the machine's own recorder, and as nobody but this user.
    question = question._replace(state=SYSTEM_STATE, runtime=SYSTEM_RUNTIME, uid=None)
    with os.fdopen(said, "w") as file:
        json.dump(answer(question, bulk), file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
