# SPDX-License-Identifier: Apache-2.0
"""Unit files of systemd that were added, edited or removed.

Source: systemd.unit(5) for the folders. That something happened in them inotify(7) says; once that is over they are
listed and compared with how they were, so a run of the package manager is one event, and a temporary file is none. How
they were stands in the runtime folder: what changed while nobody looked is told, too, within a boot. Standard library
only.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from zlib import crc32

from sysmond.errors import CorruptError
from sysmond.machine import note
from sysmond.probe import ABSENT, Host, Row
from sysmond.sources.inotify import FolderWatch
from sysmond.sources.unread import printable

FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
)
SYSTEMD = "/run/systemd/system"
"""It is there where systemd runs: sd_booted(3)."""

TYPES = frozenset((
    *("service", "socket", "device", "mount", "automount", "swap", "target", "path", "timer", "slice", "scope", "conf"),
))  # fmt: skip
# Folders beside units: of what is added to one, and of what it pulls in.
BESIDE = frozenset(("d", "wants", "requires", "upholds"))
KIND, TABLE, NOTE = "unit files", "unit_file", "unit_file.seen"
KNOWN_FROM = "file time"
FILES_MAX = 8192
SECOND_NS = 1_000_000_000
# What is installed together is a run, which is over after so long without a change.
OVER_NS = 20 * SECOND_NS
# Where folders cannot be watched they are listed so often.
LISTING_NS = 300 * SECOND_NS
LISTED_MAX, NAME_LENGTH_MAX = 3, 128
DONE = ("added", "edited", "removed")


class UnitFiles:
    """Knows the unit files of this machine, counts what becomes of them, and tells it."""

    def __init__(self) -> None:
        """Know of none yet."""
        self._watch: FolderWatch | None = None
        self._refusal = ""
        self._missing: list[str] = []
        self._files: dict[str, int] | None = None
        self._left_out = 0
        self._touched_ns = self._listed_ns = 0
        self._counts = dict.fromkeys(DONE, 0)

    def read(self, host: Host) -> Iterator[Row]:
        """Give the one row, and tell of what changed once that is over.

        :raises FileNotFoundError: where no systemd runs.
        """
        os.stat(f"{host.root}{SYSTEMD}")
        now_ns = time.monotonic_ns()
        if self._files is None:
            self._begin(host)
        elif self._is_touched(host):
            self._touched_ns = now_ns
        elif self._is_due(now_ns):
            self._compare(host, self._files)
        yield "", (*self._counts.values(), len(self._files or ()), self._left_out)

    def _begin(self, host: Host) -> None:
        try:
            self._watch = FolderWatch()
            host.at_close(self._watch.close)
        except OSError as refusal:
            self._refusal = str(refusal)
        self._compare(host, _noted(host))

    def _is_touched(self, host: Host) -> bool:
        """Whether anything happened in a folder since the last reading, or one came that was missing."""
        appeared = [folder for folder in self._missing if os.path.isdir(f"{host.root}{folder}")]
        for folder in appeared:
            self._missing.remove(folder)
            self._watch_over(f"{host.root}{folder}")
        return bool(appeared) or (self._watch is not None and self._watch.has_changed())

    def _is_due(self, now_ns: int) -> bool:
        """Whether what happened is over, or, where nobody says that anything does, it is time to look."""
        if self._touched_ns:
            return now_ns - self._touched_ns >= OVER_NS
        return bool(self._refusal) and now_ns - self._listed_ns >= LISTING_NS

    def _compare(self, host: Host, before: Mapping[str, int] | None) -> None:
        """List them, and tell of what is not as it was, where that is known."""
        files = self._list(host)
        if before is not None:
            self._tell(host, before, files)
        if files != before and host.folder:
            with suppress(OSError):
                note.write(f"{host.folder}/{NOTE}", files)
        self._files, self._touched_ns, self._listed_ns = files, 0, time.monotonic_ns()
        host.tell_way(TABLE, f"listed every {LISTING_NS // SECOND_NS} s: {self._refusal}" if self._refusal else "")

    def _list(self, host: Host) -> dict[str, int]:
        """By path, by what it is known that a file is another: its time and size. All folders are watched from now."""
        files: dict[str, int] = {}
        self._missing, self._left_out = [], 0
        for top in FOLDERS:
            try:
                entries = self._entries(host, top)
            except OSError:
                self._missing.append(top)
                continue
            beside = [entry.name for entry in entries if _kind(entry) in BESIDE and entry.is_dir(follow_symlinks=False)]
            for name in beside:
                with suppress(OSError):  # It went meanwhile.
                    entries += self._entries(host, f"{top}/{name}")
            for entry in entries:
                if _kind(entry) not in TYPES or entry.is_dir(follow_symlinks=False):
                    continue
                if len(files) >= FILES_MAX:
                    self._left_out += 1
                    continue
                with suppress(OSError):
                    status = os.lstat(entry.path)  # What an entry is asked it keeps: 1 KiB each, until all are listed.
                    path = entry.path.removeprefix(host.root)
                    files[path] = crc32(f"{status.st_mtime_ns} {status.st_size}".encode())
        return files

    def _entries(self, host: Host, folder: str) -> list["os.DirEntry[str]"]:
        """What is in a folder, sorted; what comes after that is seen by who watches it."""
        self._watch_over(f"{host.root}{folder}")
        with os.scandir(f"{host.root}{folder}") as entries:
            return sorted(entries, key=lambda entry: entry.name)

    def _watch_over(self, path: str) -> None:
        if self._watch is not None:
            try:
                self._watch.add(path)
            except (FileNotFoundError, NotADirectoryError):
                return
            except OSError as refusal:
                self._refusal = str(refusal)

    def _tell(self, host: Host, before: Mapping[str, int], files: Mapping[str, int]) -> None:
        both = files.keys() & before.keys()
        added, removed = files.keys() - both, before.keys() - both
        edited = [path for path in both if files[path] != before[path]]
        changed = {done: sorted(paths) for done, paths in zip(DONE, (added, edited, removed), strict=True)}
        for done, paths in changed.items():
            self._counts[done] += len(paths)
        every = [path for paths in changed.values() for path in paths]
        if not every:
            return
        if len(every) == 1:
            [(done, path)] = [(done, path) for done, paths in changed.items() for path in paths]
            subject, text, detail = _named(path), f"{done} in {_top(path)}", ""
        else:
            subject, text = "", "; ".join(_listed(done, paths) for done, paths in changed.items() if paths)
            shown = {done: ", ".join(map(_plain, paths)) for done, paths in changed.items() if paths}
            detail = "; ".join(f"{done}: {paths}" for done, paths in shown.items())
        happened_ns = _happened_ns(host, every)
        host.tell_event(
            KIND,
            subject,
            text,
            detail=detail,
            happened_ns=happened_ns,
            known_from=KNOWN_FROM if happened_ns != ABSENT else "",
        )


def _kind(entry: "os.DirEntry[str]") -> str:
    """What a name ends in; nothing where it is hidden, as what editors make for a while is."""
    return "" if entry.name.startswith(".") else entry.name.rpartition(".")[2]


def _listed(done: str, paths: Sequence[str]) -> str:
    more = f" and {len(paths) - LISTED_MAX} more" if len(paths) > LISTED_MAX else ""
    return f"{done} {', '.join(map(_named, paths[:LISTED_MAX]))}{more}"


def _top(path: str) -> str:
    return next(top for top in FOLDERS if path.startswith(f"{top}/"))


def _named(path: str) -> str:
    """A file as people call it: below which folder it is, of several, is in the detail."""
    return _plain(path.removeprefix(f"{_top(path)}/"))


def _plain(path: str) -> str:
    return printable(os.fsencode(path), NAME_LENGTH_MAX)


def _happened_ns(host: Host, paths: Iterable[str]) -> int:
    """When the last of these changed (UTC), as far as the file system says; of what is gone, when its folder did."""
    newest_ns = 0
    for path in paths:
        with suppress(OSError):
            newest_ns = max(newest_ns, _changed_ns(f"{host.root}{path}"))
    return newest_ns if 0 < newest_ns <= time.time_ns() else ABSENT


def _changed_ns(path: str) -> int:
    try:
        return os.lstat(path).st_ctime_ns
    except FileNotFoundError:
        return os.stat(os.path.dirname(path)).st_mtime_ns


def _noted(host: Host) -> dict[str, int] | None:
    """What a reader before it in this boot knew; None where there was none."""
    if not host.folder:
        return None
    try:
        return note.read(f"{host.folder}/{NOTE}", _shaped)
    except (OSError, CorruptError):
        return None


def _shaped(files: Any) -> dict[str, int]:  # noqa: ANN401  as JSON has it
    """Take files by path; one that is in none of the folders is none of ours.

    :raises ValueError: where one is elsewhere. :raises TypeError: where it has another form.
    """
    checked = {note.text(path): note.integer(value) for path, value in note.fields(files).items()}
    if not all(path.startswith(tuple(f"{top}/" for top in FOLDERS)) for path in checked):
        raise ValueError("a path in none of the folders")
    return checked
