# SPDX-License-Identifier: Apache-2.0
"""Light, motion, nearness and air pressure: sensors of Industrial I/O, in /sys/bus/iio.

Source: the kernel's ``Documentation/ABI/testing/sysfs-bus-iio``.
"""

from sysmond.probe import Lane, Probe, Sensitivity, Table, gauge, hookimpl
from sysmond.sources import iio

_LEFT = "While somebody reads a sensor through its buffer, it is left to him."
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
PROXIMITY = Table(
    "proximity",
    per="sensor",
    doc=f"How near something is, by sensor: in front of a screen somebody. {_LEFT}",
    metrics=(gauge("nearness", "1", "Larger is nearer; the unit is the sensor's own.", 6, "in_proximity_raw"),),
)
AIR_PRESSURE = Table(
    "air_pressure",
    per="sensor",
    doc=f"Pressure of air, by sensor. {_LEFT}",
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
        Probe(
            table,
            iio.IioSensors(*columns).read,
            iio.INTERVAL_S,
            Lane.BACKGROUND,
            sensitivity,
            subsystems=("iio",),
            options=(iio.WAKE,),
            needs=tuple(
                f"{iio.FOLDER}/iio:*/in_{kind}*" for kind in sorted({name.partition("_")[0] for name, _ in columns})
            ),
        )
        for table, sensitivity, columns in KINDS
    ]
