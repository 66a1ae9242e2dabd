# SPDX-License-Identifier: Apache-2.0
"""Addresses of network interfaces, and which way packets to the world go; what changes of them is an event.

Source: rtnetlink(7), which ``sysmond.sources.rtnetlink`` asks when the kernel tells of a change, and once a minute.
Addresses are personal: restricted.
"""

from collections.abc import Iterator
from errno import ENOENT

from sysmond.probe import ADDRESSES, Host, Lane, Probe, Row, Sensitivity, Table, Tells, hookimpl, state, text
from sysmond.sources.rtnetlink import FAMILIES, addresses, way_to

INTERVAL_S = 60.0
ADDRESSES_MAX = 256
NOWHERE = "none"

ADDRESS = Table(
    "address",
    per="address",
    doc=f"Addresses of network interfaces, such as eth0 192.0.2.7/24: the first {ADDRESSES_MAX}. Those that mean"
    " nothing beyond their link or this machine do not count.",
    metrics=(
        state("version", "Version of the Internet Protocol: 4 or 6.", "RTM_GETADDR ifa_family"),
        state("temporary", "1 for a temporary IPv6 address (privacy extensions), otherwise 0.", "IFA_F_TEMPORARY"),
    ),
)
ROUTE = Table(
    "route",
    per="family",
    doc="The default route of IPv4 and of IPv6: where packets to the rest of the world go.",
    metrics=(
        text("interface", f"The interface it uses; {NOWHERE} if there is no route.", "RTM_GETROUTE RTA_OIF"),
        text("gateway", f"The gateway it uses; {NOWHERE} if it goes out directly.", "RTM_GETROUTE RTA_GATEWAY"),
    ),
)


def read_addresses(host: Host) -> Iterator[Row]:
    """Give a row for each address.

    :raises OSError: as the kernel says; never of another machine.
    """
    _only_here(host)
    for address in sorted(set(addresses()))[:ADDRESSES_MAX]:
        yield f"{address.interface} {address.address}", (address.version, int(address.is_temporary))


def read_routes(host: Host) -> Iterator[Row]:
    """Give the two rows.

    :raises OSError: as the kernel says; never of another machine.
    """
    _only_here(host)
    for family in FAMILIES:
        way = way_to(family)
        yield family, (NOWHERE, NOWHERE) if way is None else (way.interface, way.gateway or NOWHERE)


def _only_here(host: Host) -> None:
    if host.root:
        raise OSError(ENOENT, "only the running machine can be asked")


_TELLS_ADDRESS = Tells("address", gone="address", words={1: "is there", 0: "is gone"})
_TELLS_ROUTE = Tells("default route", value=lambda row, _: f"{row['gateway']} by {row['interface']}")


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``address`` and ``route``."""
    common = Probe(ADDRESS, read_addresses, INTERVAL_S, Lane.BACKGROUND, Sensitivity.RESTRICTED, (ADDRESSES,))
    return [
        common._replace(tells=(_TELLS_ADDRESS,)),
        common._replace(table=ROUTE, read=read_routes, tells=(_TELLS_ROUTE,)),
    ]
