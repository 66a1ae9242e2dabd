# SPDX-License-Identifier: Apache-2.0
"""Draws for strangers: in pictures and pages names become numbers, and all other texts go.

Which texts stay is said in ``sysmond.store.anonymous``, for these as for a snapshot; which name became which number
nobody knows afterwards.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from sysmon_tools.moment import MomentScene, ProcessShare
from sysmon_tools.picture import Panel, Picture
from sysmond.base.model import Table
from sysmond.base.result import Event, Gap
from sysmond.history import Archive
from sysmond.store.anonymous import Anonymity
from sysmond.store.stretches.undeclared import BUILT_IN

# How a process or thread is called, and one that had the number of another: pid, tid, and when it started.
_IDS = re.compile(r"[0-9]+(?:/[0-9]+)*(?:\.[0-9]+)?")


class Anonymizer:
    """Makes the same number of the same name, in all that goes onto one page."""

    def __init__(self, per: Mapping[str, str]) -> None:
        """``per``: what the instances of each wide table are, as ``device``."""
        self._per = per
        self._names = Anonymity()

    @classmethod
    def of(cls, archive: Archive) -> Self:
        """For what is drawn of an archive."""
        return cls({entry.path.partition("/")[0]: entry.per for entry in archive.catalogue()})

    def picture(self, picture: Picture) -> Picture:
        """The same curves, gaps and events."""
        panels = [
            Panel(unit, tuple(curve._replace(path=self._path(curve.path)) for curve in curves))
            for unit, curves in picture.panels
        ]
        gaps, events = self._gaps(picture.gaps), self._events(picture.events)
        return picture._replace(panels=tuple(panels), gaps=gaps, events=events, warnings=())

    def scene(self, scene: MomentScene) -> MomentScene:
        """The same moment; what threads waited for is not for everybody, so it goes."""
        return MomentScene(
            scene.view,
            scene.now_ns,
            curves=scene.curves,
            processes=self.processes(scene.processes),
            events=self._events(scene.events),
            gaps=self._gaps(scene.gaps),
            asked_ns=scene.asked_ns,
            is_snapshot=scene.is_snapshot,
        )

    def processes(self, shares: Iterable[ProcessShare]) -> list[ProcessShare]:
        """The same processes, by the same ids."""
        return [
            share._replace(
                comm=self._text("comm", share.comm),
                user=self._text("username", share.user),
                state=self._text("state", share.state),
            )
            for share in shares
        ]

    def _path(self, path: str) -> str:
        metric, _, instance = path.partition("@")
        table = metric.partition("/")[0]
        if not instance or (table in BUILT_IN and _IDS.fullmatch(instance)):
            return path
        return f"{metric}@{self._names.instance(Table(table, (), self._per.get(table, '')), instance)}"

    def _text(self, column: str, text: str) -> str:
        return self._names.text("process", column, text) or ""

    def _events(self, events: Sequence[Event]) -> tuple[Event, ...]:
        return tuple(Event(one.time_ns, one.kind, self._names.subject(one.kind, one.subject), "") for one in events)

    def _gaps(self, gaps: Sequence[Gap]) -> tuple[Gap, ...]:
        """Absences of tables, without why; those of instances go."""
        of_tables = (gap for gap in gaps if not gap.detail.startswith(f"{gap.table}@"))
        return tuple(gap._replace(detail="") for gap in of_tables)
