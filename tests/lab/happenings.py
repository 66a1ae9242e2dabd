# SPDX-License-Identifier: Apache-2.0
"""What happens to a whole machine is an event, once: after a fresh boot, and after a part of the recorder was killed.

For the lab (``make lab ARGS=tests/lab/happenings.py``): it sets the firmware's readings, starts units that fail, fills
memory, installs a package. Then the host resets it: what follows is checked by itself when it has started again
(``guest.sh``), so this file is run alone.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from sysmond.base.clock import SECOND_NS
from sysmond.base.result import Event
from sysmond.history import Archive
from sysmond.sampler.device_groups import HOLD_NS
from tests.lab.outside import AT_FIRST, Outside
from tests.lab.sensed import LATE_NS, as_service, run, tell_supplies
from tests.support.waiting import wait_until
from tests.support.whole import Recorder

PARTS = ("sampler", "background", "archiver", "bus")
# Present where the machine was reset on purpose: what guest.sh runs then, in place of what the host asked for.
AGAIN = Path("/root/arguments")
FILES = Path("/root/lab")
SESSIONS = "/run/systemd/sessions"
# What is announced by nobody is read so often here.
READ_S = 2
CONFIG = f"""
probes:
  lid: {{interval: {READ_S}s}}
  filesystem: {{interval: {READ_S}s}}
  package: {{interval: {READ_S}s}}
  usb_power: {{enabled: true}}
"""
SLEPT_S = 8.0
# So long after its last line a run of dpkg is over.
RUN_OVER_S = 30
EATING = [sys.executable, "-I", "-S", "-c", "bytearray(400 << 20)"]


class Happening(NamedTuple):
    """What is done, and the event that has to come of it: its kind, and what its subject and text match together.

    ``within_s``: how soon, beside what an emulated processor takes. ``others_s``: so long after it another might come,
    which must not. ``subject``: what that of the one that comes matches as a whole.
    """

    does: Callable[[], object]
    kind: str
    says: str
    within_s: int = 1 + READ_S
    others_s: int = READ_S
    subject: str = ".*"


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    FILES.mkdir(exist_ok=True)
    subprocess.run(["modprobe", "--all", "battery", "ac", "button", "loop"], check=True)
    with as_service(tmp_path_factory.mktemp("recorder"), CONFIG) as made:
        wait_until(lambda: bus_is_there(made), made.said)
        yield made


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    made = Outside()
    made.say(**AT_FIRST)
    yield made
    made.close()


def bus_is_there(recorder: Recorder) -> bool:
    return Path(recorder.folders.runtime, "bus", "pid").exists() and "org.sysmond" in run(
        "busctl", "--list", "--no-legend", "list"
    )


def happened(recorder: Recorder, since_ns: int, kind: str, says: str) -> list[Event]:
    """The events of a kind since some time that say so."""
    events = Archive(recorder.folders).events(np.datetime64(since_ns, "ns"), kind=kind)
    return [event for event in events if re.search(says, f"{event.subject}: {event.text}")]


def fail(name: str) -> None:
    run("systemd-run", "--quiet", f"--unit={name}", "sh", "-c", "exit 3")


def run_out_of_memory(name: str) -> None:
    limits = ("--property=MemoryMax=60M", "--property=MemorySwapMax=0")
    run("systemd-run", "--quiet", f"--unit={name}", *limits, *EATING)


def install(version: int) -> None:
    folder = FILES / "package"
    (folder / "DEBIAN").mkdir(parents=True, exist_ok=True)
    fields = f"Package: lab-trial\nVersion: {version}\nArchitecture: all\nMaintainer: Lab <lab@example.org>\n"
    (folder / "DEBIAN/control").write_text(f"{fields}Description: nothing\n")
    run("dpkg-deb", "--build", str(folder), f"{FILES}/trial.deb")
    run("dpkg", "--install", f"{FILES}/trial.deb")


def make_read_only(place: Path) -> None:
    run("mount", "-o", "remount,ro", str(place))


def sleep(outside: Outside) -> None:
    run("umount", "/host")  # A shared folder does not come back from sleep.
    Path("/sys/power/mem_sleep").write_text("deep")
    outside.wake_after(SLEPT_S)
    Path("/sys/power/state").write_text("mem")


def log_in() -> None:
    """The console logs root in by itself, each time; an emulated processor takes seconds to get there."""
    before = os.listdir(SESSIONS)
    run("systemctl", "restart", "serial-getty@ttyS0.service")
    wait_until(lambda: set(os.listdir(SESSIONS)).difference(before))


def keyboard(does: Callable[[], object], kind: str) -> Happening:
    """A keyboard of USB is one event with its parts, however far apart the kernel announces them."""
    return Happening(does, kind, "^usb/", others_s=HOLD_NS // SECOND_NS + READ_S, subject="usb/[^:]+")


def what_happens(outside: Outside, number: int) -> list[Happening]:
    """All of it, in order; ``number``: of the round, so that what a round does is not what another did."""
    mounted = FILES / f"mounted-{number}"
    failing, hungry = f"lab-fails-{number}.service", f"lab-hungry-{number}.service"

    def mains(is_on: int) -> None:
        outside.say(plugged=is_on)
        tell_supplies()

    return [
        Happening(lambda: outside.say(lid=0), "lid", "closed"),
        Happening(lambda: outside.say(lid=1), "lid", "open"),
        Happening(lambda: mains(0), "mains", "ACAD: .*(off|disconnected|unplugged|battery)"),
        Happening(lambda: mains(1), "mains", "ACAD: .*(on|connected|plugged)"),
        keyboard(lambda: outside.monitor("device_add usb-kbd,id=keys,bus=usb.0,port=4"), "device added"),
        keyboard(lambda: outside.monitor("device_del keys"), "device removed"),
        Happening(log_in, "session", "root.*in"),
        Happening(lambda: fail(failing), "unit failed", failing),
        Happening(lambda: run_out_of_memory(hungry), "oom kill", "python3"),
        Happening(lambda: make_read_only(mounted), "read-only", mounted.name),
        Happening(lambda: install(number + 1), "packages", "lab-trial", RUN_OVER_S),
    ]


def kill(recorder: Recorder, part: str) -> None:
    """Kill a part, and wait for the next."""
    pid = recorder.pid(part)
    os.kill(pid, signal.SIGKILL)

    def is_there() -> bool:
        try:
            return recorder.pid(part) != pid and (part != "bus" or bus_is_there(recorder))
        except (OSError, ValueError):
            return False

    wait_until(is_there, recorder.said)
    time.sleep(6 * READ_S)  # Each of its tables is read meanwhile, so what is there now is no news.


def check(recorder: Recorder, each: Happening) -> None:
    """Do it, and wait for its event, of which there is one."""
    begin_ns = time.time_ns()
    each.does()
    end_ns = time.time_ns()

    def events(kind: str, says: str) -> list[Event]:
        return happened(recorder, begin_ns - SECOND_NS, kind, says)

    def seen() -> list[Event]:
        time.sleep(READ_S)  # To look without a pause would keep a processor busy that the recorder needs.
        return events(each.kind, each.says)

    wait_until(seen, lambda: (each.kind, events("*", ""), recorder.said()))
    time.sleep(each.others_s)
    found = events(each.kind, each.says)
    print(f"{each.kind}: {(found[0].time_ns - end_ns) / SECOND_NS:+.1f} s: {found[0].subject}: {found[0].text}")
    assert len(found) == 1, found
    assert re.fullmatch(each.subject, found[0].subject), found
    assert begin_ns - SECOND_NS - LATE_NS <= found[0].time_ns <= end_ns + each.within_s * SECOND_NS + LATE_NS


@pytest.mark.parametrize("part", ["", *PARTS])
def test_each_is_one_event_with_time_and_subject(recorder: Recorder, outside: Outside, part: str) -> None:
    if part:
        kill(recorder, part)
    number = ["", *PARTS].index(part)
    mounted, image = FILES / f"mounted-{number}", FILES / f"{number}.img"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    run("mke2fs", "-q", "-t", "ext4", str(image))
    run("mount", "-o", "loop", str(image), str(mounted))
    time.sleep(3 * READ_S)
    for each in what_happens(outside, number):
        check(recorder, each)


def test_a_reset_is_how_the_boot_before_ended(
    recorder: Recorder, outside: Outside, request: pytest.FixtureRequest
) -> None:
    if AGAIN.exists():

        def ended() -> list[Event]:
            return [event for event in Archive(recorder.folders).events() if event.kind == "boot ended"]

        wait_until(ended, recorder.said)  # The first flush tells it, once the recorder has said that it is there.
        (event,) = ended()
        print(event)
        assert (event.subject, event.known_from) == ("unknown", "")
        return
    if request.session.testsfailed:
        pytest.fail("what failed before would be forgotten with this boot")
    recorder.flush()
    AGAIN.write_text(f"{Path(__file__).relative_to(Path.cwd())} -k 'reset or suspend'\n")
    os.sync()
    outside.reset()
    time.sleep(60)
    pytest.fail("the machine was not reset")


def test_a_suspend_is_one_event(recorder: Recorder, outside: Outside) -> None:
    """The last: the machine has lost the shared folder then."""
    check(recorder, Happening(lambda: sleep(outside), "suspended", ""))
