# SPDX-License-Identifier: Apache-2.0
"""Who logs in and out, and locks the screen, as logind says on the bus; of before, in this boot, as logs have it.

Source: org.freedesktop.login1(5). Whose a session is stands in ``/run/systemd/sessions``, which sd-login(3) reads.
Standard library only.
"""

import os
import re
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from errno import ENOENT
from typing import NamedTuple

from sysmond.probe import Host, Row
from sysmond.sources import wtmp, wtmpdb
from sysmond.sources.bus_signals import ServiceSignals
from sysmond.sources.sd_bus import LOGIND, PROPERTIES, SdMessage

FOLDER = "/run/systemd/sessions"
TABLE = KIND = "session"
SESSION = f"{LOGIND[0]}.Session"
PATH = "/org/freedesktop/login1/session"
RULES = {
    LOGIND[0]: (
        *(f"interface='{LOGIND[2]}',member='{member}'" for member in ("SessionNew", "SessionRemoved")),
        f"interface='{PROPERTIES}',member='PropertiesChanged',path_namespace='{PATH}',arg0='{SESSION}'",
    )
}
MESSAGES_MAX, SESSIONS_MAX = 512, 4096
# Up to when all is known, by whichever way. Programs write to wtmp what logind has already said.
NOTE, SAID_BEFORE_NS = "session.seen", 2_000_000_000
# So many of before are told at a time.
PAST_MAX = 16
COUNTED = ("logins", "logouts", "locks", "unlocks")
SAID = dict(zip(COUNTED, ("logged in", "logged out", "locked", "unlocked"), strict=True))
_NAME = re.compile(r"[A-Za-z0-9]+")


class PersonsSession(NamedTuple):
    """Whose a session is, and from where."""

    user: str
    place: str


def parse(content: str) -> PersonsSession | None:
    """Read the file of a session; None for that of a login screen or a service."""
    told = dict(line.partition("=")[::2] for line in content.splitlines())
    if not told.get("CLASS", "user").startswith("user") or not told.get("USER"):
        return None
    place = f"from {told.get('REMOTE_HOST') or 'elsewhere'}" if told.get("REMOTE") == "1" else told.get("SEAT", "")
    return PersonsSession(told["USER"], place)


class Sessions:
    """Hears who comes and goes, and gives it as a row and as events."""

    def __init__(self) -> None:
        """Hear nothing yet."""
        self._signals = ServiceSignals(RULES, lambda *_: None)
        self._is_begun = False
        self._there: dict[str, PersonsSession] = {}
        self._locked: dict[str, bool] = {}
        self._counts = dict.fromkeys(COUNTED, 0)
        self._past: deque[wtmp.PastLogin] = deque()
        self._known_from = wtmp.KNOWN_FROM

    def read(self, host: Host) -> Iterator[Row]:
        """Give the one row, and tell what happened.

        :raises OSError: where there is no bus, or no logind.
        """
        if not os.path.isdir(f"{host.root}{FOLDER}"):
            raise FileNotFoundError(ENOENT, "no logind", FOLDER)
        now_ns, heard = time.time_ns(), 0
        for services, message in self._signals.take(host, MESSAGES_MAX):
            heard += 1
            if LOGIND[0] in services:
                with suppress(OSError):  # What is not as it should be is no news.
                    self._hear(host, message)
        if heard >= MESSAGES_MAX:
            host.read_soon()
        if not self._is_begun:  # Who is there already did not come.
            self._is_begun = True
            for name in host.names_anew(FOLDER)[:SESSIONS_MAX]:
                self._know(host, name)
            with suppress(OSError):  # It may not be read, or is none.
                self._past.extend(self._read_past(host, _known_until_ns(host), now_ns))
        self._tell_past(host, now_ns)
        yield "", tuple(self._counts.values())

    def _read_past(self, host: Host, since_ns: int, until_ns: int) -> list[wtmp.PastLogin]:
        """Who came and went before: by wtmpdb where that is, as what lies beside it may be of before an upgrade.

        :raises OSError: where it may not be read.
        """
        path = f"{host.root}{wtmpdb.PATH}"
        if wtmpdb.is_there(path):
            try:
                logins = wtmpdb.read(path, since_ns, until_ns)
            except OSError as problem:
                host.tell_way(TABLE, f"logins of before are not known by {wtmpdb.KNOWN_FROM}: {problem}")
            else:
                self._known_from = wtmpdb.KNOWN_FROM
                return logins
        return wtmp.read(f"{host.root}{wtmp.PATH}", since_ns, until_ns)

    def _tell_past(self, host: Host, now_ns: int) -> None:
        """Tell of some of those who came and went before, and note up to when all is told."""
        last_ns = 0
        for _ in range(min(PAST_MAX, len(self._past))):
            login = self._past.popleft()
            done = "logins" if login.has_come else "logouts"
            shown = f"{SAID[done]} ({login.place})" if login.place and login.has_come else SAID[done]
            host.tell_event(KIND, login.user, shown, happened_ns=login.time_ns, known_from=self._known_from)
            last_ns = login.time_ns
        if self._past:
            host.read_soon()
        until_ns = last_ns if self._past else now_ns + SAID_BEFORE_NS
        if host.folder:
            with suppress(OSError), open(f"{host.folder}/{NOTE}", "w", encoding="ascii") as file:
                file.write(f"{until_ns}\n")

    def _know(self, host: Host, name: str) -> None:
        """Find out whose a session is; pipes beside the sessions (NAME.ref) are none."""
        if _NAME.fullmatch(name) and len(self._there) < SESSIONS_MAX:
            with suppress(OSError):
                session = parse(host.read_anew(f"{FOLDER}/{name}").decode("utf-8", "replace"))
                if session is not None:
                    self._there[name] = session

    def _hear(self, host: Host, message: SdMessage) -> None:
        """Take in a signal.

        :raises OSError: where it is not as it should be.
        """
        if message.is_signal(LOGIND[2], "SessionNew"):
            name = message.read("s")
            self._know(host, name)
            if name in self._there:
                self._tell(host, name, "logins")
        elif message.is_signal(LOGIND[2], "SessionRemoved"):
            name = message.read("s")
            if name in self._there:
                self._tell(host, name, "logouts")
                self._locked.pop(name, None)
                del self._there[name]
        elif message.is_signal(PROPERTIES, "PropertiesChanged"):
            name = _session_of(message.path)
            message.skip("s")
            locked = message.properties({"LockedHint": "b"}).get("LockedHint")
            if locked is not None and name in self._there and bool(locked) != self._locked.get(name, False):
                self._locked[name] = bool(locked)
                self._tell(host, name, "locks" if locked else "unlocks")

    def _tell(self, host: Host, name: str, done: str) -> None:
        self._counts[done] += 1
        user, place = self._there[name]
        shown = f" ({place})" if place and done == "logins" else ""
        host.tell_event(KIND, user, f"{SAID[done]}{shown}")


def _known_until_ns(host: Host) -> int:
    """Up to when a reader before told of all, in this boot; else when that began."""
    with suppress(OSError, ValueError):
        if host.folder:
            with open(f"{host.folder}/{NOTE}", encoding="ascii") as file:
                return int(file.read(32))
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _session_of(path: str) -> str:
    """The name of the session at a path, whose first digit is spelled as ``_3`` and that digit."""
    escaped = path.removeprefix(f"{PATH}/")
    return re.sub(r"_([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), escaped)
