# SPDX-License-Identifier: Apache-2.0
"""What the checks of devices share: a recorder that senses often, what it has last, and programs that tell the same."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from tests.lab.ground import TOP, Ground
from tests.support.waiting import wait_until
from tests.support.whole import Recorder, a_recorder

SERVICE = "sysmond.service"
POLICIES = Path("/etc/dbus-1/system.d")
POLICY = Path(__file__).parent.parent.parent / "dbus/org.sysmond.SystemMonitor1.conf"
SUPPLIES = Path("/sys/class/power_supply")
INTERVAL_S = 2
# From an event of a device to its row, and to its gap; and how much later that may be where a processor is emulated.
HOT_PLUG_NS = 2 * SECOND_NS
LATE_NS = 4 * SECOND_NS


def run(*words: str) -> str:
    """Run a program to its good end; what it says."""
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout


def shown(unit: str, *properties: str) -> list[str]:
    """What systemd tells of a unit."""
    return [run("systemctl", "show", "--value", "--property", name, unit).strip() for name in properties]


def tell_supplies() -> None:
    """Have the kernel tell that power supplies changed, as firmware does by an interrupt; it keeps answers a second."""
    time.sleep(1.1)
    for supply in SUPPLIES.iterdir():
        (supply / "uevent").write_text("change")


class Service(Recorder):
    """A recorder that systemd started: what it said is in the journal."""

    def said(self) -> str:
        """What this boot's recorder said, the last of it."""
        return run("journalctl", "--boot", "--no-pager", "--lines=60", f"--unit={SERVICE}")


@contextmanager
def as_service(folder: Path, config: str = "") -> Iterator[Recorder]:
    """Have the machine's recorder as a service that is started again when it dies, on the system bus."""
    POLICIES.mkdir(parents=True, exist_ok=True)
    (POLICIES / POLICY.name).write_bytes(POLICY.read_bytes())
    run("systemctl", "reload", "dbus.service")
    properties = ("Type=notify", "Restart=always", "WatchdogSec=300", "TimeoutStartSec=600", "RuntimeDirectory=sysmond",
                  "RuntimeDirectoryPreserve=yes", "StateDirectory=sysmond")  # fmt: skip
    words = [f"--property={each}" for each in properties]
    words += [f"--setenv={name}={os.environ[name]}" for name in ("PYTHONPATH", "LC_ALL")]
    made = Service(folder)
    made.folders = Folders("/var/lib/sysmond", "/run/sysmond")
    program = [sys.executable, "-P", "-m", "sysmond", "--bus=system"]
    if config:
        made.config.write_text(config)
        program += ["--config", str(made.config)]
    # It comes back when the service has said that it records.
    run("systemd-run", "--quiet", f"--unit={SERVICE}", *words, *program)
    yield made
    run("systemctl", "stop", SERVICE)
    assert shown(SERVICE, "Result") == ["success"]


@contextmanager
def sensing(tables: Sequence[str], **options: int | str) -> Iterator[Ground]:
    """Record, these tables every ``INTERVAL_S``, with options."""
    with a_recorder() as recorder:
        settings = {"enabled": True, "interval": f"{INTERVAL_S}s", **({"options": options} if options else {})}
        recorder.config.write_text(json.dumps({"probes": dict.fromkeys(tables, settings)}))  # JSON is YAML.
        recorder.start()
        ground = Ground(TOP, recorder)
        wait_until(lambda: ground.last("load", ""), recorder.said)
        yield ground


def recorded(ground: Ground, path: str, since_ns: int) -> Iterator[tuple[str, list[int | str]]]:
    """Instances of what a path names, each with the values it had since some time: one question for all."""
    try:
        found = Archive(ground.recorder.folders).select(path, raw=True, start=since_ns)
    except Error:
        return
    for column in found.columns:
        values = column.integers.tolist() if column.integers is not None else column.texts or ()
        yield column.path.partition("@")[2], [value for value in values if value not in (None, ABSENT)]


def instances(ground: Ground, table: str, since_ns: int = 0) -> set[str]:
    """Of what a table had rows since some time, or lately."""
    since_ns = since_ns or time.time_ns() - 10 * SECOND_NS
    return {name for name, values in recorded(ground, f"{table}/*", since_ns) if values}


def newest(ground: Ground, path: str) -> dict[str, int | str]:
    """The last value of each instance, of those that had any lately."""
    found = recorded(ground, path, time.time_ns() - 10 * SECOND_NS)
    return {name: values[-1] for name, values in found if values}


def the_only(ground: Ground, table: str) -> str:
    """The one instance of a table, once it has one."""
    wait_until(lambda: len(instances(ground, table)) == 1, lambda: f"{table}: {instances(ground, table)}")
    return instances(ground, table).pop()


def plugged(ground: Ground, table: str, does: Callable[[], object], shown: Path, begins: str = "") -> str:
    """Plug something in, which the kernel shows as a folder: its instance, which ``begins`` so, in time."""
    before, begin_ns = instances(ground, table), time.time_ns()

    def new() -> set[str]:
        return {name for name in instances(ground, table, begin_ns) - before if name.startswith(begins)}

    assert not shown.exists()
    does()
    wait_until(shown.exists)
    shown_ns = time.time_ns()
    wait_until(new, lambda: f"{table}: {ground.recorder.said()}")
    name = new().pop()
    late_ns = ground.rows(table, name, begin_ns)[0].time_ns - shown_ns
    print(f"{table}@{name}: {late_ns / SECOND_NS:.2f} s after the kernel showed it")
    assert late_ns <= HOT_PLUG_NS + LATE_NS
    return name


def pulled(ground: Ground, table: str, name: str, does: Callable[[], object], shown: Path) -> None:
    """Pull something out: it has a gap from then on, in time."""
    does()
    wait_until(lambda: not shown.exists())
    gone_ns = time.time_ns()
    wait_until(lambda: ground.rows("load", "", gone_ns + HOT_PLUG_NS + LATE_NS + 4 * INTERVAL_S * SECOND_NS))
    later = [row.time_ns - gone_ns for row in ground.rows(table, name, gone_ns)]
    print(f"{table}@{name}: last row {max(later, default=0) / SECOND_NS:.2f} s after the kernel had it no more")
    assert max(later, default=0) <= HOT_PLUG_NS + LATE_NS
