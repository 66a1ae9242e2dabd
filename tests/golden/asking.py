# SPDX-License-Identifier: Apache-2.0
"""Asks an archive a question, through the library and through sysmon-extract, at a fixed time; gives what was told."""

import csv
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import h5py
import numpy as np

from sysmon_tools import extract
from sysmond import history
from sysmond.base import clock
from sysmond.base.model import ABSENT, Cause
from sysmond.base.result import Column, Event, Result
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from tests.golden.archives import Now

# That of Berlin, by its rules: not every machine has its name.
ZONE = "CET-1CEST,M3.5.0,M10.5.0/3"
FILE = re.compile(r"[0-9a-f]{32}-\d{8}-\d{8}\.h5")
DAMAGE_LINE = re.compile(rf"({Cause.DAMAGED_FILE}) \((.*)\)$")
SPELLED = {"start": "from", "end": "to", "step": "sample"}


class Asked(NamedTuple):
    """An archive that was made to be asked: where it lies, when it is asked, and what asks."""

    folders: Folders
    now: Now
    archive: "Remembering"


@contextmanager
def made(build: Callable[[Path], Now]) -> Iterator[Asked]:
    """Make an archive, in RAM, for as long as it is asked."""
    in_ram = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="sysmond-golden-", dir=in_ram) as root:
        now = build(Path(root))
        folders = Folders(f"{root}/state", f"{root}/run")
        yield Asked(folders, now, Remembering(folders))


class Question(NamedTuple):
    """What is asked. ``kind``: of series, of the records of a long table, or words for the program alone."""

    name: str
    kind: str
    paths: Sequence[str]
    said: Mapping[str, Any]
    formats: Sequence[str]

    def words(self) -> list[str]:
        """The same, as sysmon-extract has it."""
        found = list(self.paths)
        for name, value in self.said.items():
            option = f"--{SPELLED.get(name, name).replace('_', '-')}"
            found.append(option if value is True else f"{option}={value}")
        return found


@contextmanager
def at(now: Now) -> Iterator[None]:
    """Let it be that time, on the machine of that boot, in a zone that has summer time."""
    clocks = {
        clock.CLOCK_BOOTTIME: now.relation.boottime_ns,
        clock.CLOCK_REALTIME: now.relation.realtime_ns,
        clock.CLOCK_MONOTONIC: now.relation.monotonic_ns,
    }
    with (
        patch.object(time, "time_ns", lambda: now.relation.realtime_ns),
        patch.object(time, "clock_gettime_ns", clocks.__getitem__),
        patch.object(clock, "boot_id", lambda: now.boot),
        patch.dict(os.environ, {"TZ": ZONE}),
    ):
        time.tzset()
        try:
            yield
        finally:
            os.environ.pop("TZ")
            time.tzset()
    time.tzset()


class Remembering(Archive):
    """An archive that is not asked the same twice: a question goes out in several formats."""

    def __init__(self, folders: Folders) -> None:
        super().__init__(folders)
        self._told: dict[str, tuple[Any, list[str]]] = {}

    def select(self, *patterns: str, **said: Any) -> Result:
        """Read series over a range of time."""
        told: Result = self._once(super().select, patterns, said)
        return told

    def records(self, table: str, **said: Any) -> Result:
        """Read the rows of a long table."""
        told: Result = self._once(super().records, (table,), said)
        return told

    def _once(self, ask: Callable[..., Any], paths: Sequence[str], said: Mapping[str, Any]) -> Any:
        stats = said.get("stat")
        said = {**said, "stat": ",".join(stats) if isinstance(stats, tuple) else stats}
        said = {name: value for name, value in said.items() if value and (name, value) != ("stat", "mean")}
        key = repr((sorted(paths), sorted(said.items())))
        if key not in self._told:
            self._told[key] = ask(*paths, **said), self.warnings
        told, self.warnings = self._told[key]
        return told


def answers(asked: Asked, question: Question) -> dict[str, Any]:
    """All that is told, as JSON has it."""
    with at(asked.now), patch.object(history, "open", lambda **_: asked.archive):
        found = {} if question.kind == "program" else {"library": library(asked.archive, question)}
        for each in question.formats:
            found[each] = extracted(asked.folders, question, each)
    return as_json(found)


def _told(events: Iterable[Event]) -> list[list[str | int]]:
    """Events; of those that say no more the time, kind, subject and text."""
    return [list(event if event != Event(*event[:4]) else event[:4]) for event in events]


def listed(asked: Asked) -> dict[str, Any]:
    """What there is in an archive."""
    archive = asked.archive
    with at(asked.now):
        return as_json(_listed(archive))


def as_json(told: dict[str, Any]) -> dict[str, Any]:
    """The same, with lists for tuples and text for what is written as text."""
    found: dict[str, Any] = json.loads(json.dumps(told))
    return found


def _listed(archive: Archive) -> dict[str, Any]:
    return {
        "series": [list(each) for each in archive.catalogue()],
        "long_tables": [list(each) for each in archive.long_tables()],
        "boots": [list(each) for each in archive.boots()],
        "events": _told(archive.events()),
    }


def library(archive: Archive, question: Question) -> dict[str, Any]:
    """What the library tells: arrays, gaps and events."""
    try:
        told: Result = (
            archive.records(question.paths[0], **question.said)
            if question.kind == "records"
            else archive.select(*question.paths, **question.said)
        )
    except Error as refusal:
        return {"error": type(refusal).__name__}
    found: dict[str, Any] = {"times_ns": told.times_ns.tolist(), "step_ns": told.step_ns}
    found |= {"columns": [_column(column) for column in told.columns]}
    found |= {"gaps": [[gap.start_ns, gap.end_ns, gap.table, str(gap.cause), _detail(str(gap.cause), gap.detail)]
                       for gap in told.gaps]}  # fmt: skip
    found |= {"events": _told(told.events), "sensitivity": str(told.sensitivity)}
    found |= {"explanations": list(told.explanations)}
    if told.table:
        found["dtype"] = [str(field) for field in told.records.dtype.descr]
    return found


def _column(column: Column) -> dict[str, Any]:
    values: Sequence[Any] = column.texts or ()
    if column.integers is not None:
        values = [None if value == ABSENT else value for value in column.integers.tolist()]
    elif column.floats is not None:
        values = [None if np.isnan(value) else value for value in column.floats.tolist()]
    kind = "text" if column.texts is not None else "floats" if column.integers is None else "integers"
    about = {"path": column.path, "unit": column.unit, "semantics": str(column.semantics), "stat": column.stat}
    return {**about, "scale": column.scale, "decimals": column.decimals, "kind": kind, "values": list(values)}


def _detail(cause: str, detail: str) -> str:
    """What a gap says; of damage only which file it is of: the words are HDF5's, and ours may become better."""
    return " ".join(FILE.findall(detail)) if cause == Cause.DAMAGED_FILE else detail


def extracted(folders: Folders, question: Question, form: str) -> Any:
    """What sysmon-extract tells in a format, as whoever reads that format has it, and how it ends."""
    words = [*question.words(), f"--state-dir={folders.state}", f"--runtime-dir={folders.runtime}", f"--format={form}"]
    if form == "hdf5":
        path = f"{os.path.dirname(folders.state)}/answer.h5"
        code, _ = run([*words, f"--output-file={path}"])
        return {"exit": code, **(_members(Path(path)) if code in {0, 3} else {})}
    code, text = run(words)
    return {"exit": code, **_parsed(text, form)}


def run(words: Sequence[str]) -> tuple[int, str]:
    """Run the program in this process; what it says on standard error is not ours."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with patch.object(sys, "stdout", out), patch.object(sys, "stderr", err):
        code = extract.main(words)
    out.flush()
    assert isinstance(out.buffer, io.BytesIO)
    return code, out.buffer.getvalue().decode()


def _parsed(text: str, form: str) -> dict[str, Any]:
    if form == "json":
        told = json.loads(text or "null")
        return {"told": _without_words(told)}
    if form == "jsonl":
        return {"lines": [_without_words(json.loads(line)) for line in text.splitlines()]}
    if form in {"csv", "tsv"}:
        lines = text.splitlines(keepends=True)
        comments = [_line(line.rstrip("\n")) for line in lines if line.startswith("#")]
        rest = "".join(line for line in lines if not line.startswith("#"))
        cells = list(csv.reader(io.StringIO(rest, newline=""), delimiter="," if form == "csv" else "\t"))
        return {"comments": comments, "cells": cells}
    return {"lines": [_line(line) for line in text.splitlines()]}


def _line(line: str) -> str:
    return DAMAGE_LINE.sub(lambda match: f"{match[1]} ({_detail(match[1], match[2])})", line)


def _without_words(told: Any) -> Any:
    """JSON whose gaps of damage only name their files."""
    if isinstance(told, list):
        return [_without_words(each) for each in told]
    if isinstance(told, dict):
        if told.get("cause") == Cause.DAMAGED_FILE and "detail" in told:
            told = {**told, "detail": _detail(told["cause"], told["detail"])}
        return {name: _without_words(each) for name, each in told.items()}
    return told


def _members(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with h5py.File(path) as file:

        def take(name: str, item: h5py.Dataset | h5py.Group) -> None:
            found[name] = {key: str(np.asarray(value).tolist()) for key, value in item.attrs.items()}
            if isinstance(item, h5py.Dataset):
                found[name] |= {"type": str(item.dtype), "values": _line(str(item[()].tolist()))}

        file.visititems(take)
    path.unlink()
    return found
