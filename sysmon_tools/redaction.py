# SPDX-License-Identifier: Apache-2.0
"""Takes out of text what tells whose machine it is: names, homes, addresses, serial numbers.

What this machine knows about itself is masked wherever it stands, and what only looks like an address is masked, too.
Sources of serial numbers: the kernel's Documentation/ABI, of ``/sys/class/dmi/id``, block devices, USB, power supplies.
"""

import glob
import os
import pwd
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from ipaddress import IPv6Address
from typing import Any, NamedTuple

SERIALS = (
    *("sys/class/dmi/id/*serial", "sys/class/dmi/id/product_uuid", "sys/class/dmi/id/*asset_tag"),
    *("sys/block/*/device/serial", "sys/block/*/device/wwid", "sys/block/*/wwid", "sys/block/*/serial"),
    *("sys/class/net/*/address", "sys/bus/usb/devices/*/serial", "sys/class/power_supply/*/serial_number"),
    *("proc/device-tree/serial-number", "etc/machine-id", "proc/sys/kernel/random/boot_id"),
)
SERIAL_BYTES_MAX = 256
FILES_MAX = 10_000
# Shorter ones are no serial number, but "0", "None" or "N/A".
SERIAL_LENGTH_MIN = 5
NAME_LENGTH_MIN = 2
_NO_SERIAL = re.compile(r"[0:. -]*|not specified|none|default string|to be filled.*|unknown|chassis.*", re.IGNORECASE)
# As login.defs(5) has UID_MIN; nobody is nobody.
PEOPLE_UID_MIN = 1000
NOBODY_UID = 65534
# Where people have their files; what lies directly below is a name.
HOMES = ("/home", "/root", "/run/user", "/run/media", "/media", "/mnt", "/srv", "/Users")
# Quoted paths that belong to the system, and are nobody's.
_SYSTEM = re.compile(
    r"/(?:proc|sys|dev|etc|usr|lib|run/sysmond|run/systemd|run/dbus|var/lib/sysmond|var/cache/sysmond)\b"
)
_QUOTED = re.compile(r"(?<!\w)'((?:[^'\\\n]|\\.)*)'|\"((?:[^\"\\\n]|\\.)*)\"")
# What comes behind these was said by the interpreter or the system; behind others, by whoever met the data.
_SAID = r"AttributeError|TypeError|NameError|ImportError|ModuleNotFoundError|IndexError|ZeroDivisionError|MemoryError"
_RAISED = re.compile(rf"\b(?!(?:{_SAID})\b)([A-Z]\w*(?:Error|Exception|Warning)|\w+\.[eE]rror): (?!\[Errno )[^\n]+")
_PATTERNS = (
    (re.compile(r"(?<![0-9A-Za-z])[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5,19}(?![0-9A-Za-z])"), "<address>"),
    (re.compile(r"\b[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b"), "<id>"),
    (re.compile(r"\b[0-9A-Fa-f]{32}\b"), "<id>"),
    (re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\w)"), "<address>"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<address>"),
)
_COLONS = re.compile(r"(?<![\w:])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")


class Known(NamedTuple):
    """What a machine knows about itself. ``homes``: folders of people, wherever they lie."""

    hosts: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    serials: tuple[str, ...] = ()


def of_machine(root: str = "/") -> Known:
    """What this machine knows about itself; hardware as below ``root``."""
    nodename = os.uname().nodename
    accounts = [account for account in pwd.getpwall() if _is_person(account)]
    full_names = {account.pw_gecos.partition(",")[0] for account in accounts}
    people = {account.pw_name for account in accounts} | full_names | set(_of_environment())
    homes = {account.pw_dir for account in accounts} | {os.path.expanduser("~")}
    return Known(
        tuple(
            {nodename, nodename.partition(".")[0], _first_line(f"{root.rstrip('/')}/etc/hostname")} - {"localhost", ""}
        ),
        tuple(name for name in people if len(name) >= NAME_LENGTH_MIN and name != "root"),
        tuple(home for home in homes if home.count("/") > 1 or home == "/root"),
        tuple(_serials(root.rstrip("/"))),
    )


def _is_person(account: pwd.struct_passwd) -> bool:
    return PEOPLE_UID_MIN <= account.pw_uid != NOBODY_UID or account.pw_uid == os.getuid()


def _of_environment() -> Iterator[str]:
    for variable in ("SUDO_USER", "USER", "LOGNAME"):
        if name := os.environ.get(variable):
            yield name


def _serials(root: str) -> Iterator[str]:
    paths = (path for pattern in SERIALS for path in glob.iglob(f"{root}/{pattern}"))
    for path, _ in zip(paths, range(FILES_MAX), strict=False):
        serial = _first_line(path)
        if len(serial) >= SERIAL_LENGTH_MIN and not _NO_SERIAL.fullmatch(serial):
            yield serial


def _first_line(path: str) -> str:
    """The first line of a file; nothing, where it cannot be read: then nobody else could have read it for us."""
    with suppress(OSError), open(path, "rb") as file:
        return file.read(SERIAL_BYTES_MAX).partition(b"\n")[0].strip(b" \0").decode(errors="replace")
    return ""


class Redaction:
    """Masks what is known of a machine, and what looks like an address."""

    def __init__(self, known: Known) -> None:
        """``known``: what is masked wherever it stands."""
        homes = "|".join(sorted({re.escape(home) for home in (*known.homes, *HOMES)}, key=len, reverse=True))
        # To the end of the quotes, or of the word: names of folders tell as much.
        self._home = re.compile(
            rf"(?<=['\"])(?:{homes})(?:/[^'\"]*)?(?=['\"])|(?<![\w.])(?:{homes})(?:/[^\s'\",;:]*|\b)"
        )
        masks = {"<serial>": known.serials, "<user>": known.people, "<host>": known.hosts}
        self._mask = {word.casefold(): mask for mask, words in masks.items() for word in words}
        words = "|".join(sorted(map(re.escape, self._mask), key=len, reverse=True))
        self._word = re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])", re.IGNORECASE) if words else None

    def text(self, text: str) -> str:
        """Mask in text of our own, whose quotes hold names of ours."""
        masked = self._home.sub("<home>", text)
        if self._word is not None:
            masked = self._word.sub(lambda match: self._mask[match[0].casefold()], masked)
        for pattern, mask in _PATTERNS:
            masked = pattern.sub(mask, masked)
        return _COLONS.sub(lambda match: "<address>" if _is_address(match[0]) else match[0], masked)

    def free(self, text: str) -> str:
        """Mask in text that may cite anything: in quotes only paths of the system stay, of exceptions their kind."""
        named = _RAISED.sub(lambda raised: raised[0] if _cites_system(raised[0]) else f"{raised[1]}: …", text)
        return self.text(_QUOTED.sub(lambda match: match[0] if _is_of_system(match) else "'…'", named))

    def all_of(self, document: Any) -> Any:  # noqa: ANN401  as JSON has it
        """Mask in every text of a document, names of members included."""
        if isinstance(document, str):
            return self.text(document)
        if isinstance(document, Mapping):
            return {self.text(str(name)): self.all_of(value) for name, value in document.items()}
        if isinstance(document, Iterable):
            return [self.all_of(value) for value in document]
        return document


def _is_of_system(quoted: re.Match[str]) -> bool:
    inside = quoted[1] if quoted[1] is not None else quoted[2]
    return _SYSTEM.match(inside) is not None and ".." not in inside


def _cites_system(raised: str) -> bool:
    """Whether all that an exception says is a quoted path of the system, as a missing file does."""
    quoted = _QUOTED.fullmatch(raised.partition(": ")[2])
    return quoted is not None and _is_of_system(quoted)


def _is_address(text: str) -> bool:
    """Whether it is an IPv6 address: a time of day is none."""
    with suppress(ValueError):
        return text != "::" and bool(IPv6Address(text))
    return False
