# SPDX-License-Identifier: Apache-2.0
"""A systemd, or a logind, that a test tells what to say on a real bus."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import CLOCK_MONOTONIC, clock_gettime_ns
from typing import Any

from sysmond.sources.unit_states import SERVICE, SYSTEMD, UNIT
from tests.support import systemd as stand_in

PROPERTIES = "org.freedesktop.DBus.Properties"
PATH = "/org/freedesktop/systemd1/unit/backup_2eservice"


_SIGNATURES = {str: "s", int: "t", list: "as"}


def now_us() -> int:
    return clock_gettime_ns(CLOCK_MONOTONIC) // 1000


class Systemd:
    """The stand-in, told what to say."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def tell(self, *told: Any) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(told)}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def changed(self, interface: str, values: dict[str, Any], path: str = PATH) -> None:
        body = [interface, typed(values), []]
        assert self.tell("signal", SYSTEMD, path, PROPERTIES, "PropertiesChanged", "sa{sv}as", body) == "done"

    def service(self, result: str, code: int, status: int, restarts: int = 0) -> None:
        values = {"Result": result, "ExecMainCode": code, "ExecMainStatus": status, "NRestarts": restarts}
        self.changed(SERVICE, {**values, "StatusText": "of no use"})

    def state(self, state: str, sub: str, time_us: int, path: str = PATH) -> None:
        self.changed(UNIT, unit_values(state, sub, time_us), path)


def unit_values(state: str, sub: str, time_us: int) -> dict[str, Any]:
    entered = "Active" if state == "active" else "Inactive"
    return {
        "ActiveState": state,
        "SubState": sub,
        f"{entered}EnterTimestampMonotonic": time_us,
        f"{entered}EnterTimestamp": 5_000_000 + time_us,
    }


def typed(values: dict[str, Any]) -> dict[str, Any]:
    kinds = {"NRestarts": "u", "ExecMainCode": "i", "ExecMainStatus": "i"}
    return {name: {"as": kinds.get(name) or _SIGNATURES[type(value)], "is": value} for name, value in values.items()}


@contextmanager
def speaking(address: str, *names: str) -> Iterator[Systemd]:
    words = [sys.executable, stand_in.__file__, address, *names]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "there\n"
        systemd = Systemd(process)
        systemd.tell("answer", "Subscribe", None, [])
        systemd.tell("answer", "ListUnitsFiltered", "a(ssssssouso)", [[]])
        yield systemd
        process.stdin.close()
