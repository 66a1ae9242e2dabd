# SPDX-License-Identifier: Apache-2.0
"""How a machine shakes, as its accelerometer tells by its buffer. Off by default.

Source: the kernel's ``Documentation/iio/iio_devbuf.rst`` (``sysmond.sources.iio_buffer``).
"""

from sysmond.probe import Lane, Probe, Sensitivity, Table, gauge, hookimpl
from sysmond.sources import iio, iio_buffer

_ORIGIN = "scan_elements/in_accel_{}_type, in_accel_scale"

VIBRATION = Table(
    "vibration",
    per="sensor",
    doc="How much accelerometers shook during one second, shortly after the previous reading; gravity"
    " does not count. Only one program at a time can read a sensor's buffer: for that second no"
    " desktop can rotate its screen by it, and while a desktop reads it, there is a gap.",
    metrics=(
        gauge("rms", "m/s²", "Root mean square of the acceleration, all axes together.", 6, _ORIGIN.format("*")),
        gauge("peak", "m/s²", "The largest acceleration.", 6, _ORIGIN.format("*")),
        *(gauge(f"rms_{axis}", "m/s²", f"Root mean square along {axis}.", 6, _ORIGIN.format(axis)) for axis in "xyz"),
        gauge("rate", "Hz", "Samples per second; half of that is the fastest shaking that can be seen.", 3, "buffer"),
    ),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``vibration``."""
    return [
        Probe(
            VIBRATION,
            iio_buffer.Vibrations().read,
            iio_buffer.INTERVAL_S,
            Lane.BACKGROUND,
            Sensitivity.RESTRICTED,
            subsystems=("iio",),
            options=(iio.WAKE,),
            enabled=False,
            needs=(f"{iio.FOLDER}/iio:*/scan_elements/in_accel_x_en",),
            privilege="root, to set up the buffer",
        )
    ]
