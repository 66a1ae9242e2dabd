# SPDX-License-Identifier: Apache-2.0
"""What the bus part refuses: each as ``org.sysmond.SystemMonitor1.Error.NAME``, with one line of text."""

from sysmond.bus.wire.names import ERROR
from sysmond.errors import BusyError, Error, NotPermittedError, UsageError

DBUS_ERROR = "org.freedesktop.DBus.Error"


class RefusedError(Error):
    """A call that is answered with an error of ours; the base itself says ``Failed``."""

    bus_name = f"{ERROR}.Failed"


class InvalidArgumentError(RefusedError):
    """An argument has the right type and a value that cannot be."""

    bus_name = f"{ERROR}.InvalidArgument"


class NotFoundError(RefusedError):
    """There is no such probe, metric, pin."""

    bus_name = f"{ERROR}.NotFound"


class NotAuthorizedError(RefusedError):
    """The caller may not."""

    bus_name = f"{ERROR}.NotAuthorized"


class LimitError(RefusedError):
    """A bound of the caller's, or of all callers together, is reached."""

    bus_name = f"{ERROR}.TooMuch"


class OccupiedError(RefusedError):
    """Somebody else holds what is needed."""

    bus_name = f"{ERROR}.Busy"


class UnavailableError(RefusedError):
    """Another part, or the bus itself, does not answer."""

    bus_name = f"{ERROR}.Unavailable"


class ForeignCallError(RefusedError):
    """A call that is wrong as such: the error is one of D-Bus' own."""

    def __init__(self, name: str, text: str) -> None:
        """``name``: the last element, as ``UnknownMethod``."""
        super().__init__(text)
        self.bus_name = f"{DBUS_ERROR}.{name}"


def bus_error(failure: Exception) -> tuple[str, str]:
    """Name of the error and its line of text, for whatever a method raised."""
    text = " ".join(str(failure).split()) or type(failure).__name__
    match failure:
        case RefusedError():
            return failure.bus_name, text
        case UsageError():
            return InvalidArgumentError.bus_name, text
        case NotPermittedError():
            return NotAuthorizedError.bus_name, text
        case BusyError():
            return OccupiedError.bus_name, text
        case Error():
            return RefusedError.bus_name, text
        case _:
            return RefusedError.bus_name, f"{type(failure).__name__}: {text}"
