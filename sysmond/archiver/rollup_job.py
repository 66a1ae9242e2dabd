# SPDX-License-Identifier: Apache-2.0
"""The job that rolls up: files of rows that are on disk, and in no tier yet, become files of every tier.

A file of a tier is named by the files of rows that it was made from; by that alone is known what is still to be made.
It is published whole, and what a job that was killed has left undone the next one does. Most of what little content
costs in a tier is the file and its series, however few buckets each has: readers have the rows until more has gathered.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial

from sysmond.archiver.coding import Coding
from sysmond.base.model import EVENTS, FINEST_TIER, Sensitivity
from sysmond.errors import Error
from sysmond.machine.folders import FILE_MODES, Folders, create_stream
from sysmond.machine.memory import BoundError, working_on
from sysmond.store import archive, events, tiers
from sysmond.store.archive import Name
from sysmond.store.tiers import Beside, Due

# So many sealed files, four hours as it is by default, are worth rolling up; or the bytes that a coding names.
RIPE_SEALS = 24
# Of wide tables fewer are while a boot is young: from two files of a tier is foretold how long its budget lasts.
FIRST_SEALS = 3

MakeRoom = Callable[[str, int], object]
"""Is told the tier and how many bytes will come."""


def whatever(_rows: str, _run: Due) -> bool:
    """All is rolled up."""
    return True


def is_ripe(coding: Coding, boot: str, rows: str, run: Due) -> bool:
    """Whether a run of files of rows in a folder is worth rolling up; what is not is when its rows are to go.

    ``boot``: the current one. To those before it nothing is added, and many short ones would leave answers over months
    all their rows: wide tables, which share a file, are rolled up then; long ones, each with files of its own, are not.
    """
    first, last = run.names[0].first, run.names[-1].last
    enough = RIPE_SEALS
    if not coding.is_long:
        if run.names[0].boot != boot:
            return True
        enough = min(RIPE_SEALS, max(FIRST_SEALS, (first - 1) // 2))
    return last - first + 1 >= enough or tiers.size_bytes(rows, run.names) >= coding.ripe_bytes


def roll_up(
    folders: Folders,
    coding: Coding,
    make_room: MakeRoom,
    left_alone: set[str],
    is_due: Callable[[str, Due], bool] = whatever,
) -> None:
    """Make the files of the tiers of files of rows that have none yet.

    ``left_alone``: paths of what is not tried, to which those are added that are damaged. ``is_due``: which runs are.
    """
    for sensitivity, table in archive.disk_folders(folders, is_long=coding.is_long):
        rows = archive.disk_folder(folders, sensitivity, FINEST_TIER, table)
        if not os.path.isdir(rows):
            continue
        places = {tier: archive.disk_folder(folders, sensitivity, tier, table) for tier in coding.tiers}
        for place in places.values():
            create_stream(folders.state, place.removeprefix(f"{folders.state}/"))
            archive.remove_temporary(place)
        if EVENTS in places:
            _gather_events(places, FILE_MODES[sensitivity], make_room)
        beside = partial(_places, folders, sensitivity)
        due = tiers.due(rows, places, left_alone, coding.seals_at_once, coding.bytes_at_once)
        for run in (run for run in due if is_due(rows, run)):
            for name, images in _rolled_up(coding, rows, run, beside, left_alone):
                for tier, image in images.items():
                    make_room(tier, len(image))
                    archive.publish(places[tier], name.file, image, FILE_MODES[sensitivity])


def _gather_events(places: Mapping[str, str], mode: int, make_room: MakeRoom) -> None:
    """Begin the tier of events, where there is none yet, with those that the other tiers have."""
    with suppress(Error):
        if not archive.files(places[EVENTS]) and (
            found := events.gathered([place for tier, place in places.items() if tier != EVENTS])
        ):
            file, image = found
            make_room(EVENTS, len(image))
            archive.publish(places[EVENTS], file, image, mode)


def _places(folders: Folders, sensitivity: Sensitivity, table: str) -> list[str]:
    """Where files of rows of a table of a class are: in RAM, and on disk."""
    return [
        archive.ram_folder(folders, sensitivity, table),
        archive.disk_folder(folders, sensitivity, FINEST_TIER, table),
    ]


def _rolled_up(
    coding: Coding, rows: str, run: Due, beside: Beside, left_alone: set[str]
) -> Iterator[tuple[Name, dict[str, bytes]]]:
    """Roll up a run; where that fails without those before it as well, each file by itself, so that one is left out."""
    whole = Name(run.names[0].boot, run.names[0].first, run.names[-1].last)
    for attempt in (run, run._replace(before=[])) if run.before else (run,):
        try:
            with working_on(*(f"{rows}/{name.file}" for name in run.names)):
                images = coding.roll_up(rows, attempt, beside)
            yield whole, images
        except FileNotFoundError:
            return
        except BoundError:
            if attempt.before or len(run.names) > 1:
                continue
            left_alone.add(f"{rows}/{whole.file}")
            raise
        except Error:
            continue
        return
    if len(run.names) == 1:
        left_alone.add(f"{rows}/{whole.file}")
        return
    for number, name in enumerate(run.names):
        single = Due([name], run.tiers, [*run.before, *run.names[:number]])
        yield from _rolled_up(coding, rows, single, beside, left_alone)
