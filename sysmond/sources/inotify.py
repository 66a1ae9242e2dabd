# SPDX-License-Identifier: Apache-2.0
"""Whether anything was made, written, moved or removed in some folders, as the kernel remembers; what, a listing says.

Source: inotify(7). Its events are not read one by one: some may be lost, and many are about files that are gone a
moment later. Standard library only.
"""

import ctypes
import os

_CLOSE_WRITE, _MOVED, _CREATE, _DELETE, _ONLY_FOLDERS = 0x8, 0xC0, 0x100, 0x200, 0x1000000
_WANTED = _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _ONLY_FOLDERS
_READ_BYTES = 65536


class FolderWatch:
    """Watches folders for as long as it is open."""

    def __init__(self) -> None:
        """Watch nothing yet.

        :raises OSError: where this user watches too much already.
        """
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = _checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify")

    def add(self, folder: str) -> None:
        """Watch a folder, too, unless it is watched already.

        :raises OSError: where it is gone, or no folder; where this user watches too many.
        """
        _checked(self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _WANTED), folder)

    def has_changed(self) -> bool:
        """Whether anything happened since this was last asked."""
        happened = False
        try:
            while os.read(self._descriptor, _READ_BYTES):
                happened = True
        except BlockingIOError:
            return happened
        return happened

    def close(self) -> None:
        """Watch nothing any more."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result
