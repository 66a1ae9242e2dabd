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
    doc="How accelerometers shook for a second, soon after the reading before; gravity is not counted. A buffer has one"
    " reader: for that second no desktop can turn its screen by it, and while one does, the row is a gap.",
    metrics=(
        gauge("rms", "m/s²", "Root mean square of the acceleration, all axes together.", 6, _ORIGIN.format("*")),
        gauge("peak", "m/s²", "The largest acceleration.", 6, _ORIGIN.format("*")),
        *(gauge(f"rms_{axis}", "m/s²", f"Root mean square along {axis}.", 6, _ORIGIN.format(axis)) for axis in "xyz"),
        gauge("rate", "Hz", "How many samples came a second; half of that is the fastest shaking seen.", 3, "buffer"),
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
