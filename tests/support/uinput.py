# SPDX-License-Identifier: Apache-2.0
"""Input devices of the kernel's own that a test makes and uses, where there is ``/dev/uinput``.

Source: the kernel's ``Documentation/input/uinput.rst`` and ``include/uapi/linux/uinput.h``.
"""

import fcntl
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from struct import pack

from tests.support.inputs import EV_ABS, EV_KEY, EV_REL, EVENT, Event

NODE = Path("/dev/uinput")
EV_MSC, MSC_SCAN = 4, 4
BUS_VIRTUAL = 6
_SETUP, _AXIS = "@4H80sI", "@Hxx6i"


def _request(number: int, size: int = 0) -> int:
    return (1 << 30 if size else 0) | size << 16 | ord("U") << 8 | number


CREATE, DESTROY, DEV_SETUP, ABS_SETUP = _request(1), _request(2), _request(3, 92), _request(4, 28)
SET_TYPE, SET_KEY, SET_REL, SET_ABS, SET_MSC = (_request(number, 4) for number in range(100, 105))


class Device:
    """A device with these keys and buttons, movements, and axes with units a millimetre; it has scan codes, too."""

    def __init__(
        self, name: str, keys: Iterable[int], moves: Iterable[int] = (), axes: Mapping[int, int] | None = None
    ) -> None:
        self._descriptor = os.open(NODE, os.O_WRONLY | os.O_CLOEXEC)
        self._tell(SET_TYPE, (EV_KEY, EV_REL, EV_MSC, *([EV_ABS] if axes else [])))
        self._tell(SET_KEY, keys)
        self._tell(SET_REL, moves)
        self._tell(SET_MSC, (MSC_SCAN,))
        for axis, resolution in (axes or {}).items():
            self._tell(SET_ABS, (axis,))
            fcntl.ioctl(self._descriptor, ABS_SETUP, pack(_AXIS, axis, 0, 0, 30_000, 0, 0, resolution))
        fcntl.ioctl(self._descriptor, DEV_SETUP, pack(_SETUP, BUS_VIRTUAL, 1, 1, 1, name.encode(), 0))
        fcntl.ioctl(self._descriptor, CREATE)

    def send(self, *events: Event) -> None:
        """Have it say something."""
        os.write(self._descriptor, b"".join(pack(EVENT, 0, 0, *event) for event in events))

    def unplug(self) -> None:
        """Take it away."""
        os.close(self._descriptor)

    def _tell(self, request: int, codes: Iterable[int]) -> None:
        for code in codes:
            fcntl.ioctl(self._descriptor, request, code)
