# SPDX-License-Identifier: Apache-2.0
"""The Manager as far as it steers and tells how sysmond is: what takes neither a loop nor the D-Bus library.

Who asks no more, in a process of its own, loads no more. ``offer`` puts values beside it.
"""

from sysmond.bus.part import BusPart
from sysmond.bus.probes import Probes
from sysmond.bus.status import Status
from sysmond.bus.steering import Steering
from sysmond.bus.wire.names import OBJECT_PATH
from sysmond.bus.wire.standard import Objects


def offer_state(part: BusPart) -> Probes:
    """Put it in its place, and an object for each probe."""
    steering = Steering(part)
    probes = Probes(part, steering)
    status = Status(part, probes)
    part.service.export(OBJECT_PATH, steering, status, Objects(part.service))
    part.when_planned.append(lambda: part.service.changed(OBJECT_PATH, status, "TickPeriod"))
    return probes
