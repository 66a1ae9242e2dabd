# SPDX-License-Identifier: Apache-2.0
"""Where a bus is to be had: its addresses on this machine, and whether anything is there.

Source: D-Bus specification, "Server Addresses".
"""

import os

from sysmond.bus.wire.errors import UnavailableError

SYSTEM_BUS = "unix:path=/run/dbus/system_bus_socket"
_SOCKET = "unix:path="


def local(address: str) -> str:
    """The address of a bus on this machine.

    :raises UnavailableError: where it is none, or nobody knows it.
    """
    match address:
        case "system":
            addresses = os.environ.get("DBUS_SYSTEM_BUS_ADDRESS", SYSTEM_BUS)
        case "session":
            addresses = os.environ.get("DBUS_SESSION_BUS_ADDRESS", "")
            if not addresses and (folder := os.environ.get("XDG_RUNTIME_DIR")):
                addresses = f"unix:path={folder}/bus"
        case _:
            addresses = address
    if not addresses:
        raise UnavailableError("session: no bus is known; $DBUS_SESSION_BUS_ADDRESS would name it")
    if not all(part.startswith("unix:") for part in addresses.split(";") if part):
        raise UnavailableError(f"{addresses}: not on this machine; expected unix:path=PATH")
    return addresses


def may_be_there(address: str) -> bool:
    """Whether to try: not where nobody knows the bus, and not where no file lies where its sockets would."""
    try:
        sockets = [part for part in local(address).split(";") if part]
    except UnavailableError:
        return False
    # What is spelled otherwise, such as an abstract socket or a path with escapes, only connecting tells.
    paths = [part.removeprefix(_SOCKET).partition(",")[0] for part in sockets if part.startswith(_SOCKET)]
    return len(paths) < len(sockets) or any("%" in path or os.path.exists(path) for path in paths)
