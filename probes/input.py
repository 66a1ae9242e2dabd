# SPDX-License-Identifier: Apache-2.0
"""How much keyboards, mice and touchpads are used: counts alone, no keys, no places. Off by default.

Source: the devices of evdev, ``/dev/input/event*``, which root and the group ``input`` may open.
"""

from sysmond.probe import Lane, Option, Probe, Sensitivity, Table, counter, hookimpl
from sysmond.sources import evdev

INTERVAL_S = 60.0

INPUT = Table(
    "input",
    per="device",
    doc="How much each keyboard, mouse and touchpad was used: only counts, never which keys or where."
    " The counts advance once a minute, even if the table is read more often: counts per second"
    " would reveal the length of a password. If more happened than the kernel keeps, there is a"
    " gap. While it is on, the devices stay open.",
    metrics=(
        counter("keys", "1", "Keys pressed, whichever they are; without repetitions.", origin="EV_KEY"),
        counter("buttons", "1", "Buttons pressed.", origin="EV_KEY BTN_*"),
        counter("wheel_steps", "1", "Steps of wheels, in all directions.", origin="EV_REL REL_WHEEL, REL_HWHEEL"),
        counter(
            "pointer_distance", "1", "Distance moved by the pointer, in units of the device.", 0, "EV_REL REL_X, REL_Y"
        ),
        counter("touches", "1", "How often a surface was touched.", origin="EV_KEY BTN_TOUCH"),
        counter(
            "touch_distance",
            "m",
            "Distance moved by the finger that touched first, if the device knows its own size.",
            6,
            "EV_ABS ABS_X, ABS_Y",
        ),
    ),
)
PERIOD = Option(
    "period_s",
    60,
    "The shortest time between two advances of the counts: short times reveal more about people.",
    1,
    3600,
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``input``."""
    return [
        Probe(
            INPUT,
            evdev.Counting().read,
            INTERVAL_S,
            Lane.BACKGROUND,
            Sensitivity.RESTRICTED,
            subsystems=("input",),
            options=(PERIOD,),
            enabled=False,
            needs=(f"{evdev.NODES}/event*",),
            privilege="group input",
        )
    ]
