# SPDX-License-Identifier: Apache-2.0
"""Whether somebody else uses a disk: only then may it be asked for what would keep it from spinning down.

Source: ``/sys/block/DISK/stat`` (the kernel's ``Documentation/block/stat.rst``), which disturbs no disk, and the ledger
in which the archiver counts what sysmond itself writes. A write is counted there when it is done, and the journal of a
file system follows it, so growth is believed one look later, and not at all near a write of our own.
"""

from contextlib import suppress

from sysmond.probe import Host

# A disk was used when its counters grew within the last so many seconds.
USED_S = 60.0
# Metadata of a file follows its data within the writeback interval of the kernel (dirty_expire_centisecs), and a bit.
AFTER_OWN_S = 35.0
LEDGER = "archiver/ledger.json"
_LONG_AGO_S = float("-inf")


class DiskUse:
    """Looks at one disk at each tick; ``host.runtime`` is where the archiver notes what it wrote."""

    def __init__(self, stat: str) -> None:
        """``stat``: the path of the disk's counters."""
        self._stat = stat
        self._counts = b""
        self._ledger = b""
        self._own_s = self._grew_s = self._used_s = _LONG_AGO_S

    def is_used(self, host: Host, now_s: float) -> bool:
        """Look, and say whether somebody else has used the disk of late.

        :raises OSError: where the disk is gone.
        """
        ledger = b""
        with suppress(OSError):
            ledger = Host().read_anew(f"{host.runtime}/{LEDGER}") if host.runtime else b""
        if ledger != self._ledger:
            self._ledger, self._own_s = ledger, now_s
        if self._own_s + AFTER_OWN_S < self._grew_s:
            self._used_s = max(self._used_s, self._grew_s)
        counts = host.read_anew(self._stat)
        if self._counts and counts != self._counts:
            self._grew_s = now_s
        self._counts = counts
        return now_s - self._used_s <= USED_S

    def asked(self, host: Host) -> None:
        """The disk has just been asked: what that added to its counters is no use by others.

        :raises OSError: where the disk is gone.
        """
        self._counts = host.read_anew(self._stat)
