# SPDX-License-Identifier: Apache-2.0
"""Backlights of screens and keyboards: how bright they are set.

Source: the kernel's ``Documentation/ABI/stable/sysfs-class-backlight`` and ``testing/sysfs-class-led``. ``brightness``
is read, which the kernel knows of a screen, and not ``actual_brightness``, which asks its hardware.
"""

from collections.abc import Iterator

from sysmond.probe import Absence, Answers, Cause, Derived, Host, Lane, Probe, Row, Table, gauge, hookimpl
from sysmond.sources.slots import COSTLY_S
from sysmond.sources.unread import printable, why

SCREENS, LEDS = "/sys/class/backlight", "/sys/class/leds"
KEYBOARD = "kbd_backlight"
LIGHTS_MAX = 64

BACKLIGHT = Table(
    "backlight",
    per="device",
    doc="The brightness that backlights of screens and keyboards are set to.",
    metrics=(
        gauge("brightness", "1", "The level it is set to; 0 may mean off, or dim.", origin="brightness"),
        gauge("max", "1", "The highest level.", origin="max_brightness"),
    ),
    answers=Answers(
        derived=(
            Derived("share", "%", "brightness / max * 100", "The brightness it is set to, as a share of the highest."),
        )
    ),
)


def read(host: Host) -> Iterator[Row]:
    """Give a row for each backlight; one that cannot be read says why."""
    keyboards = [f"{LEDS}/{name}" for name in host.names(LEDS) if KEYBOARD in name]
    for folder in [*(f"{SCREENS}/{name}" for name in host.names(SCREENS)), *keyboards][:LIGHTS_MAX]:
        instance = printable(folder.rpartition("/")[2].encode("utf-8", "surrogateescape"))
        if host.is_asleep(f"{folder}/device"):
            yield instance, Absence(Cause.ASLEEP)
            continue
        try:
            yield instance, (int(host.read(f"{folder}/brightness")), host.integer(f"{folder}/max_brightness"))
        except (OSError, ValueError) as problem:
            yield instance, why("brightness", problem)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``backlight``. That of a keyboard is asked of the embedded controller: seldom."""
    needs = (f"{SCREENS}/*", f"{LEDS}/*{KEYBOARD}")
    seldom = Probe(BACKLIGHT, read, 30.0, Lane.BACKGROUND, subsystems=("backlight", "leds"), needs=needs)
    return [seldom._replace(costly_s=COSTLY_S)]
