# SPDX-License-Identifier: Apache-2.0
"""Where the machine is, by a receiver of GPS or another satellite system. Off by default.

Source: gpsd where it runs (gpsd_json(5)), else NMEA 0183 from a serial device that the administrator names.
"""

from collections.abc import Iterator
from errno import ENODEV

from sysmond.probe import Absence, Cause, Host, Lane, Option, Probe, Row, Sensitivity, Table, gauge, hookimpl, state
from sysmond.sources import gps

INTERVAL_S = 10.0

GPS = Table(
    "gps",
    per="receiver",
    doc="Where the machine is and how fast it moves, by receiver: from gpsd where it runs, otherwise"
    " from the serial device that the option device names. It reveals where people are, so it is"
    " restricted, and off by default. While it is on, gpsd keeps its receivers on, or the device"
    " stays open; a sleeping device is not opened.",
    metrics=(
        state("fix", "0 nothing known yet; 1 no fix; 2 a position; 3 with altitude.", "TPV mode; GSA, GGA"),
        gauge("latitude", "°", "Degrees north, south below 0.", 7, "TPV lat; GGA, RMC"),
        gauge("longitude", "°", "Degrees east, west below 0.", 7, "TPV lon; GGA, RMC"),
        gauge("altitude", "m", "Height above mean sea level.", 3, "TPV altMSL; GGA"),
        gauge("speed", "m/s", "Speed over ground.", 3, "TPV speed; RMC"),
        gauge("satellites_used", "1", "Satellites used for the position.", origin="SKY uSat; GGA"),
        gauge("satellites_seen", "1", "Satellites the receiver can see.", origin="SKY nSat; GSV"),
        gauge("time_error", "s", "Possible error of its time, by gpsd's estimate.", 9, "TPV ept"),
    ),
)
OPTIONS = (
    Option("port", gps.GPSD_PORT, "Where gpsd listens on this machine.", 1, 65535),
    Option("device", "", "A serial device that speaks NMEA, such as /dev/ttyUSB0, if there is no gpsd."),
    Option("speed", 0, "Speed of that device in bits per second; 0 leaves it as it is set.", 0, 4_000_000),
)


class Receivers:
    """Asks gpsd, or listens to a device."""

    def __init__(self) -> None:
        """Know nobody yet."""
        self._gpsd, self._serial = gps.Gpsd(), gps.Serial()
        self._is_held = False

    def read(self, host: Host, *, port: int, device: str, speed: int) -> Iterator[Row]:
        """Give a row for each receiver."""
        if not self._is_held:
            self._is_held = True
            host.at_close(self._gpsd.close)
            host.at_close(self._serial.close)
        try:
            fixes = self._gpsd.fixes(port)
        except ConnectionRefusedError:
            if not device:
                raise OSError(ENODEV, f"no gpsd on port {port}, and the option device names none") from None
            host.tell_way(GPS.name, f"by NMEA of {device}; no gpsd")
            yield device, self._of_device(host, device, speed)
            return
        self._serial.close()
        host.tell_way(GPS.name, "by gpsd")
        yield from fixes.items()

    def _of_device(self, host: Host, device: str, speed: int) -> Absence | gps.Fix:
        if not self._serial.is_open and host.is_asleep(f"/sys/class/tty/{device.rpartition('/')[2]}/device"):
            return Absence(Cause.ASLEEP)
        return self._serial.fix(host.root + device, speed)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``gps``."""
    return [
        Probe(
            GPS,
            Receivers().read,
            INTERVAL_S,
            Lane.BACKGROUND,
            Sensitivity.RESTRICTED,
            subsystems=("tty",),
            options=OPTIONS,
            enabled=False,
            privilege="group dialout for a serial device, or nothing where gpsd runs",
        )
    ]
