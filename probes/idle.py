# SPDX-License-Identifier: Apache-2.0
"""How long nobody has used the machine: by logind's hint, else by the time of the last event of input devices.

Source: org.freedesktop.login1(5) ``IdleHint``; without logind ``/dev/input/event*``, if the administrator says so.
"""

from collections.abc import Iterator
from errno import ENOENT
from time import CLOCK_MONOTONIC, clock_gettime_ns

from sysmond.probe import ABSENT, Host, Lane, Option, Probe, Row, Sensitivity, Table, gauge, hookimpl, state
from sysmond.sources import evdev, logind

INTERVAL_S = 60.0

IDLE = Table(
    "idle",
    doc="Whether people are using the machine. From logind: desktops tell it when they become idle;"
    " text consoles count as idle after 5 minutes without a key; whoever inhibits idleness, such"
    " as a video player, counts as use. Without logind, with the option evdev, from the last"
    " event of any input device. Restricted, unless the configuration makes it public.",
    metrics=(
        state("hint", "1 if the session counts as idle; only from logind.", origin="login1 IdleHint"),
        gauge(
            "duration",
            "s",
            "How long it has counted as idle, otherwise 0; without logind, the time since the last input.",
            origin="login1 IdleSinceHintMonotonic; evdev",
        ),
    ),
)
EVDEV = Option("evdev", default=False, doc="Whether input devices are kept open for it if there is no logind.")


class Idleness:
    """Asks whoever knows."""

    def __init__(self) -> None:
        """Listen to nothing yet."""
        self._last = evdev.LastInput()

    def read(self, host: Host, *, evdev: bool) -> Iterator[Row]:
        """Give the one row."""
        now_us = clock_gettime_ns(CLOCK_MONOTONIC) // 1000
        if host.names_anew(logind.FOLDER):
            host.tell_way(IDLE.name, "by logind")
            is_idle, since_us = logind.hint()
            known = is_idle and 0 < since_us <= now_us
            yield "", (int(is_idle), (now_us - since_us) // 1_000_000 if known else ABSENT if is_idle else 0)
        elif evdev:
            host.tell_way(IDLE.name, "by input devices; no logind")
            last_us = self._last.read(host)
            yield "", (ABSENT, ABSENT if last_us is None else max(0, now_us - last_us) // 1_000_000)
        else:
            raise FileNotFoundError(ENOENT, "no logind, and the option evdev is off")


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``idle``."""
    needs = (f"{logind.FOLDER}/*", f"{evdev.NODES}/event*")
    return [
        Probe(
            IDLE,
            Idleness().read,
            INTERVAL_S,
            Lane.BACKGROUND,
            Sensitivity.PUBLIC,
            subsystems=("input",),
            options=(EVDEV,),
            needs=needs,
            public_by_choice=True,
            privilege="group input, where there is no logind",
        )
    ]
