# SPDX-License-Identifier: Apache-2.0
"""Asks the programs about an archive with a hostile file in it, within limits, and judges what they say.

Each question is a child of this process, which has loaded the programs already: it runs the program's own ``main`` with
its own command line, has so many seconds, and its largest size in memory is measured. It gives either the truth, or
as much of it as is right and names the file as damaged; good neighbours give all they have.
"""

import csv
import gc
import io
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import IO, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before numpy: the threads would be each child's.

from sysmon_tools import extract
from sysmond import __main__ as sysmond
from sysmond import history as _history  # noqa: F401  as above
from sysmond.commands import fsck as _fsck  # noqa: F401  loaded once, before the children
from sysmond.errors import EXIT_PARTIAL
from tests.hostile.scenes import Scene

# Of a processor: what else the machine does is nobody's fault.
PROCESSOR_S = 10
# Who waits longer than that waits for ever, beside whatever load.
WALL_S = 60.0
MEMORY_BYTES = 300 << 20
# What keeps the machine alive where a bound is broken; no program under test sets these for itself.
_DATA_BYTES = 1 << 30
_OUTPUT_BYTES = 64 << 20
# Children that run at once.
_AT_ONCE = 2
_PROGRAMS: Mapping[str, Callable[[Sequence[str]], int]] = {"sysmond": sysmond.main, "sysmon-extract": extract.main}
# The first gives all that can be found wrong in a file, the others what users ask for.
FSCK = "fsck"
QUESTIONS: Mapping[str, Sequence[str]] = {
    "rows": (),
    "sample": ("--sample=10s",),
    "list": ("--list",),
}


class Answer(NamedTuple):
    """What came of a question. ``code``: as of ``subprocess``; ``is_late``: ended by us."""

    code: int
    said: str
    warned: str
    seconds: float
    peak_bytes: int
    is_late: bool

    @property
    def harm(self) -> str:
        """What it did that no program may do, whatever it is asked about; or nothing."""
        if self.is_late or self.code == -signal.SIGXCPU:
            return f"hung: ended after {self.seconds:.1f} s, at {self.peak_bytes >> 20} MiB"
        if self.code < 0:
            return f"crashed: {signal.Signals(-self.code).name}"
        if "Traceback" in self.warned:
            return f"traceback: {self.warned.strip().splitlines()[-1][:200]}"
        if self.peak_bytes > MEMORY_BYTES:
            return f"took {self.peak_bytes >> 20} MiB, in {self.seconds:.1f} s"
        return ""


class Child:
    """A question that is being answered."""

    def __init__(self, program: str, arguments: Sequence[str]) -> None:
        self._said, self._warned = (_memory(name) for name in ("said", "warned"))
        self._began_s = time.monotonic()
        self._process = os.fork()
        if self._process == 0:
            _be(_PROGRAMS[program], arguments, self._said, self._warned)
        self.watch = os.pidfd_open(self._process)

    @property
    def left_s(self) -> float:
        """How long it may go on."""
        return self._began_s + WALL_S - time.monotonic()

    def end(self) -> Answer:
        """Take its answer; it is ended where it goes on."""
        is_late = not select.select([self.watch], [], [], 0)[0]
        if is_late:
            os.kill(self._process, signal.SIGKILL)
        _, status, used = os.wait4(self._process, 0)
        os.close(self.watch)
        code, seconds = os.waitstatus_to_exitcode(status), time.monotonic() - self._began_s
        return Answer(code, _text(self._said), _text(self._warned), seconds, used.ru_maxrss << 10, is_late)


def _memory(name: str) -> IO[bytes]:
    return open(os.memfd_create(name), "w+b")


def _text(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode("utf-8", "replace")


def _be(run: Callable[[Sequence[str]], int], arguments: Sequence[str], said: IO[bytes], warned: IO[bytes]) -> None:
    """Be the child; never returns."""
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (_DATA_BYTES, _DATA_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_OUTPUT_BYTES, _OUTPUT_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(said.fileno(), 1)
        os.dup2(warned.fileno(), 2)
        code = run(arguments)
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001  what a program lets through is told as Python tells it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ask(questions: Mapping[str, tuple[str, Sequence[str]]]) -> dict[str, Answer]:
    """Ask several questions, each a program and its arguments, some at a time."""
    gc.freeze()
    waiting, running, answers = dict(questions), dict[str, Child](), dict[str, Answer]()
    while waiting or running:
        while waiting and len(running) < _AT_ONCE:
            name = next(iter(waiting))
            running[name] = Child(*waiting.pop(name))
        left_s = max(0.0, min(child.left_s for child in running.values()))
        ready, _, _ = select.select([child.watch for child in running.values()], [], [], left_s)
        for name, child in [*running.items()]:
            if child.watch in ready or child.left_s <= 0:
                answers[name] = running.pop(name).end()
    return answers


def asked(scene: Scene) -> dict[str, Answer]:
    """All that is asked about an archive."""
    where = ("--state-dir", scene.folders.state, "--runtime-dir", scene.folders.runtime)
    questions: dict[str, tuple[str, Sequence[str]]] = {FSCK: ("sysmond", (FSCK, *where))}
    for name, options in QUESTIONS.items():
        what = () if name == "list" else (scene.path,)
        questions[name] = ("sysmon-extract", (*what, *options, "--utc", "--format=csv", *where))
    return ask(questions)


Cells = Counter[tuple[str, ...]]
"""What an answer says, in parts that can be held against those of another: each value of a wide table, else rows."""


class Verdict(Enum):
    """What has to come of a case."""

    DAMAGE = "it cannot be, and whoever reads it has to say so"
    TRUE = "it says what it said before, or is named"
    LIE = "it may say something else: only the neighbours count"
    REDEFINES = "it says what a column is, which is then so for all: what that hides of others is said, and by whom"


class Truth(NamedTuple):
    """What the questions give with the victim as it was written, and without it."""

    whole: dict[str, Cells]
    without: dict[str, Cells]


def truth(scene: Scene) -> Truth:
    """Ask about the good archive.

    :raises RuntimeError: where that is not answered, or the victim makes no difference.
    """
    found = []
    for prepare in (scene.remove, scene.restore):
        prepare()
        answers = asked(scene)
        for name, answer in answers.items():
            if answer.code or answer.harm or answer.warned:
                raise RuntimeError(
                    f"{scene.kind}: {name} of a good archive: {answer.harm or answer.code}, {answer.warned}"
                )
        found.append({name: cells(name, answers[name].said, scene) for name in QUESTIONS})
    without, whole = found
    if not whole["rows"] - without["rows"]:
        raise RuntimeError(f"{scene.kind}: no row is the victim's")
    return Truth(whole, without)


def cells(name: str, said: str, scene: Scene) -> Cells:
    """Take an answer apart."""
    lines = [line for line in said.splitlines() if not line.startswith("#")]
    rows = csv.DictReader(io.StringIO("\n".join(lines)))
    if name == "list":
        # From when and until when depends on what else there is.
        return Counter((row["path"], row["unit"], row["semantics"]) for row in rows)
    if scene.kind.startswith("wide"):
        return Counter(
            (row["time"], name, cell) for row in rows for name, cell in row.items() if name != "time" and cell
        )
    return Counter(tuple(f"{name}={cell}" for name, cell in row.items()) for row in rows)


def judge(scene: Scene, expected: Truth, answers: Mapping[str, Answer], verdict: Verdict) -> Iterator[str]:
    """What is wrong with the answers about an archive whose victim was exchanged; each with the question's name."""
    victim = os.path.basename(scene.victim)
    for name, answer in answers.items():
        if answer.harm:
            yield f"{name}: {answer.harm}"
        if answer.harm or (verdict is Verdict.REDEFINES and name == "list"):
            continue
        # What is no segment at all is unknown to a check, and in nobody's way.
        is_named = victim in answer.said if name == FSCK else answer.code == EXIT_PARTIAL and victim in answer.warned
        if not is_named and (answer.code or answer.warned):
            yield f"{name}: exit code {answer.code}, {answer.warned[:200]!r}, which does not name it"
        elif name == FSCK and not is_named and verdict is Verdict.DAMAGE:
            yield f"{name}: taken without a word"
        elif name != FSCK:  # What a question has no use for it need not read.
            found = cells(name, answer.said, scene)
            may_lie = verdict in {Verdict.LIE, Verdict.REDEFINES}
            if not (verdict is Verdict.REDEFINES and is_named):
                yield from _compare(name, found, expected, is_exact=not is_named and not may_lie, may_lie=may_lie)


def _compare(name: str, found: Cells, expected: Truth, *, is_exact: bool, may_lie: bool) -> Iterator[str]:
    whole, without = expected.whole[name], expected.without[name]
    if is_exact and found != whole:
        lost, strange = whole - found, found - whole
        yield f"{name}: silently wrong: {lost.total()} lost, {strange.total()} others, as {_example(strange or lost)}"
    elif lost := (whole & without) - found:
        yield f"{name}: {lost.total()} of the neighbours' are lost, as {_example(lost)}"
    elif not may_lie and (strange := found - (whole | without)):
        yield f"{name}: named, and yet {strange.total()} are wrong, as {_example(strange)}"


def _example(some: Cells) -> str:
    return ", ".join(next(iter(some)))[:120]
