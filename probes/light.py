# SPDX-License-Identifier: Apache-2.0
"""Light, motion, orientation, nearness and air pressure: sensors of Industrial I/O, in /sys/bus/iio.

Source: the kernel's ``Documentation/ABI/testing/sysfs-bus-iio``.
"""

from collections.abc import Callable, Iterable

from sysmond.probe import Lane, Probe, Row, Sensitivity, Table, gauge, hookimpl, state
from sysmond.sources import iio, iio_orientation

_LEFT = "While another program reads a sensor through its buffer, there is a gap."
LIGHT = Table(
    "light",
    per="sensor",
    doc=f"Ambient light, by sensor. {_LEFT}",
    metrics=(gauge("illuminance", "lx", "How bright it is.", 6, "in_illuminance_input, in_illuminance_raw"),),
)
MOTION = Table(
    "motion",
    per="sensor",
    doc=f"Accelerometers and gyroscopes, by sensor: single readings, not the motion between them. {_LEFT}",
    metrics=(
        *(
            gauge(f"acceleration_{axis}", "m/s²", f"Acceleration along {axis}.", 6, f"in_accel_{axis}_raw")
            for axis in "xyz"
        ),
        *(gauge(f"rotation_{axis}", "rad/s", f"Rotation about {axis}.", 6, f"in_anglvel_{axis}_raw") for axis in "xyz"),
    ),
)
ORIENTATION = Table(
    "orientation",
    per="sensor",
    doc=f"How the machine is held, by accelerometer, or by a sensor hub that combines its sensors. {_LEFT}",
    metrics=(
        state(
            "side_up",
            "Which side is up: 0 none (it lies flat, or is between two); 1 normal; 2 bottom-up; 3 left-up; 4 right-up.",
            "in_accel_*_raw, in_mount_matrix",
        ),
        *(
            gauge(f"rotation_{part}", "1", f"Quaternion of the rotation: {part}.", 6, "in_rot_quaternion_raw")
            for part in "xyzw"
        ),
    ),
)
PROXIMITY = Table(
    "proximity",
    per="sensor",
    doc=f"How near something is, by sensor: for a screen, somebody in front of it. {_LEFT}",
    metrics=(gauge("nearness", "1", "Larger is nearer; the unit is the sensor's own.", 6, "in_proximity_raw"),),
)
AIR_PRESSURE = Table(
    "air_pressure",
    per="sensor",
    doc=f"Air pressure, by sensor. {_LEFT}",
    metrics=(gauge("pressure", "Pa", "The pressure.", 3, "in_pressure_input, in_pressure_raw"),),
)
# Table, who may read it, and its columns: channels, and decimals of the unit that IIO has (of pressure the kilopascal).
KINDS = (
    (LIGHT, Sensitivity.PUBLIC, (("illuminance", 6),)),
    (
        MOTION,
        Sensitivity.RESTRICTED,
        tuple((f"{kind}_{axis}", 6) for kind in ("accel", "anglvel") for axis in "xyz"),
    ),
    (PROXIMITY, Sensitivity.RESTRICTED, (("proximity", 6),)),
    (AIR_PRESSURE, Sensitivity.PUBLIC, (("pressure", 6),)),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer a table for each kind of sensor."""
    return [
        *(
            _probe(table, iio.IioSensors(*columns).read, sensitivity, {name.partition("_")[0] for name, _ in columns})
            for table, sensitivity, columns in KINDS
        ),
        _probe(ORIENTATION, iio_orientation.Orientations().read, Sensitivity.RESTRICTED, {"accel_x", "rot_quaternion"}),
    ]


def _probe(table: Table, read: Callable[..., Iterable[Row]], sensitivity: Sensitivity, kinds: set[str]) -> Probe:
    return Probe(
        table,
        read,
        iio.INTERVAL_S,
        Lane.BACKGROUND,
        sensitivity,
        subsystems=("iio",),
        options=(iio.WAKE,),
        needs=tuple(f"{iio.FOLDER}/iio:*/in_{kind}*" for kind in sorted(kinds)),
    )
