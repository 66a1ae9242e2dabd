# SPDX-License-Identifier: Apache-2.0
"""Boot a small Debian in a container (systemd-nspawn), with sysmond as its units have it, and check it from outside.

    python tests/lab/service.py [--keep] [-k WORD]

A container shares the kernel, so it is as fast as the machine, and what it shows is what belongs to systemd: that each
part runs as its own user with its own privileges, records, obeys, and comes back. The project is installed from this
folder as it is, for the container's Python. It takes root, mmdebstrap, systemd-nspawn and, once, a mirror of Debian
(``LAB_MIRROR``). Exit code 0: all passed; 1: not; 2: it cannot run here. ``--keep`` leaves the container running;
``-k`` runs the checks that have a word in their name, or in that of their module: ``-k acts``.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent.parent))
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from tests.lab import lab

REPOSITORY = Path(__file__).resolve().parent.parent.parent
FOLDER = REPOSITORY / "build/lab/service"
SUITE = "trixie"
TOOLS = {"mmdebstrap": "mmdebstrap", "systemd-nspawn": "systemd-container", "nsenter": "util-linux"}
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "polkitd", "libpam-systemd", "udev", "libbpf1", "smartmontools"),
    *("python3", "python3-dbus-fast", "python3-h5py", "python3-numpy", "python3-pluggy"),
    *("python3-rich", "python3-textual", "python3-yaml"),
    # For what ordinary users do (acts.py): a terminal, and what lets people log in.
    *("openssh-server", "procps", "tmux"),
)
# Another one where other packages are wanted.
ROOT = FOLDER / f"root-{zlib.crc32(repr((SUITE, PACKAGES)).encode()):08x}"
MODULES = ("sysmond", "sysmon_tools", "sysmond_probes")
PROGRAMS = {"sysmond": "sysmond", "sysmon": "sysmon", "sysmonctl": "sysmonctl", "sysmon-extract": "sysmon_extract"}
# Of a mapping in /proc/PID/smaps (proc(5)) its path and its share of memory.
_MAPPED = re.compile(r"^\w+-\w+ \S+ \S+ \S+ \d+ *(\S*)$(?s:.*?)^Pss: +(\d+) kB", re.MULTILINE)
RESIDENTS = ("sampler", "background", "archiver", "bus")
CALL = (
    *("busctl", "--json=short", "call", "org.sysmond.SystemMonitor1", "/org/sysmond/SystemMonitor1"),
    "org.sysmond.SystemMonitor1.Manager",
)
PLAN_UNIT = "sysmond-plan.service"
BROKEN = "/etc/sysmond/conf.d/x.yaml"
# A file system for the archive that is not there before somebody says so.
LATE = {
    "lab-late.service": """[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=300
ExecStart=/bin/sh -c 'until test -e /run/lab-late; do sleep 0.2; done'
""",
    "var-lib-sysmond.mount": """[Unit]
DefaultDependencies=no
Requires=lab-late.service
After=lab-late.service
Conflicts=umount.target
Before=umount.target
[Mount]
What=/srv/late
Where=/var/lib/sysmond
Type=none
Options=bind
""",
}
LOADER = ("python3", "-I", "-m", "sysmond.tasks.bpf.loader", "--runtime-dir=/run/sysmond")
UP = frozenset({"running", "degraded"})
BOOT_S = 60.0
COMES_S = 30.0
IDLE_S = 100.0
HELD_BACK_S = 10


def build() -> None:
    """Make the container's root folder, once, and install the project in it as it is now."""
    if not (ROOT / "usr").is_dir():
        print(f"lab: fetching Debian {SUITE}; half a minute, once", file=sys.stderr)
        unfinished = FOLDER / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        mirror = os.environ.get("LAB_MIRROR", "")
        words = ["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", "--dpkgopt=force-unsafe-io"]
        words += [f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in ("doc", "man", "locale")]
        subprocess.run(
            [*words, SUITE, str(unfinished), *([f"deb {mirror} {SUITE} main"] if mirror else [])], check=True
        )
        unfinished.rename(ROOT)
    built = FOLDER / "package"
    lab.package(built, FOLDER / "sources")
    modules = ROOT / "usr/lib/python3/dist-packages"
    for module in (*MODULES, *(info.name for info in built.glob("*.dist-info"))):
        shutil.rmtree(modules / module, ignore_errors=True)
        shutil.copytree(built / module, modules / module)
    shutil.rmtree(built)
    for program, function in PROGRAMS.items():
        text = f"#!/usr/bin/python3 -I\nimport sys\nfrom sysmond.entry import {function}\nsys.exit({function}())\n"
        (ROOT / "usr/bin" / program).write_text(text)
        (ROOT / "usr/bin" / program).chmod(0o755)
    for unit in (ROOT / "usr/lib/systemd/system").glob("*sysmond*"):
        unit.unlink()
    words = ["make", "--silent", "install-files", f"DESTDIR={ROOT}", "INTERPRETER=/usr/bin/python3"]
    subprocess.run(words, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    for folder in ("var/lib/sysmond", "var/cache/sysmond", "etc/sysmond/conf.d"):
        shutil.rmtree(ROOT / folder, ignore_errors=True)
    # As a package does when it is installed: units cannot write byte code, and would compile all at each start.
    folders = " ".join(f"/usr/lib/python3/dist-packages/{module}" for module in MODULES)
    words = [f"python3 -m compileall -q {folders}", "systemd-sysusers", "systemd-tmpfiles --create sysmond.conf"]
    # The network is this machine's, too, and so is its port 22.
    words += ["systemctl --quiet disable ssh.service ssh.socket", "systemctl --quiet enable sysmond.target"]
    script = " && ".join(words)
    subprocess.run(
        ["systemd-nspawn", "-q", "-D", str(ROOT), "--register=no", "--keep-unit", "sh", "-c", script],
        check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


class Container:
    """A container that runs; ``leader`` is its process 1, as this machine numbers it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.leader = 0

    def words(self, *command: str) -> list[str]:
        """The command line by which something is run in it."""
        environment = ["env", "-i", "PATH=/usr/sbin:/usr/bin", "LC_ALL=C.UTF-8", "HOME=/root"]
        return ["nsenter", "--target", str(self.leader), "--all", *environment, *command]

    def run(self, *command: str, check: bool = True) -> str:
        """Run a program in it, and give what it said."""
        done = subprocess.run(self.words(*command), capture_output=True, text=True, check=False, timeout=120)
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}: exit code {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def pid(self, part: str) -> int:
        """The process of a part, as the container numbers it; 0 for none."""
        return int(self.run("systemctl", "show", "--value", "--property=MainPID", f"sysmond-{part}.service"))

    def file(self, path: str) -> str:
        """The content of a file in it."""
        return self.run("cat", path)


@contextmanager
def booted(root: Path = ROOT, *, stays: bool = False, states: frozenset[str] = UP) -> Iterator[Container]:
    """The container of a root folder, from when systemd says one of these states to its end.

    Its console goes into a file beside that folder.
    """
    words = ["systemd-nspawn", "-q", "-D", str(root), "--register=no", "--keep-unit", "--capability=all"]
    words += ["--system-call-filter=bpf perf_event_open", "--boot", "systemd.unit=multi-user.target"]
    # As Debian 13 has it, whatever this machine has: systemd freezes nothing where version 1 is beside version 2.
    environ = {**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
    with (root.parent / "console.log").open("wb") as console:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True, env=environ
        )
    made = Container(process)
    try:
        wait_for("the container boots", lambda: _is_up(made, states), BOOT_S)
        yield made
    finally:
        if not stays:
            process.terminate()
            process.wait(BOOT_S)


def _is_up(made: Container, states: frozenset[str]) -> bool:
    children = Path(f"/proc/{made.process.pid}/task/{made.process.pid}/children").read_text().split()
    if not children:
        return False
    made.leader = int(children[0])
    return made.run("systemctl", "is-system-running", check=False).strip() in states


def wait_for(what: str, met: Callable[[], bool], limit_s: float = COMES_S) -> None:
    """Wait until something is so."""
    until_s = time.monotonic() + limit_s
    while not met():
        if time.monotonic() > until_s:
            raise AssertionError(f"not within {limit_s:.0f} s: {what}")
        time.sleep(0.2)


def all_run(made: Container) -> None:
    """Wait until all residents run and a row is recorded; the bus part does, once it is asked for something."""
    made.run("sysmonctl", "status")
    for part in RESIDENTS:
        unit = f"sysmond-{part}.service"
        wait_for(f"{unit} runs", partial(_is_active, made, unit))
    wait_for("rows", lambda: ticks(made) > 1)


def _is_active(made: Container, unit: str) -> bool:
    return made.run("systemctl", "is-active", unit, check=False).strip() == "active"


def _said(made: Container, *command: str) -> list[str]:
    return made.run(*command, check=False).splitlines()


def ticks(made: Container) -> int:
    """How many rows of the last ten seconds are there."""
    said = made.run("sysmon-extract", "load/tasks", "--from=-10s", check=False)
    return sum(line[:1].isdigit() and not line.endswith(",") for line in said.splitlines())


def each_part_is_its_own_user_with_its_own_capabilities(made: Container) -> None:
    """Sampler, archiver and bus part have none at all."""
    allowed = {"sampler": 0, "archiver": 0, "bus": 0, "background": 1 << 2 | 1 << 12 | 1 << 19 | 1 << 34}
    for part, bits in allowed.items():
        status = dict(line.split(":", 1) for line in made.file(f"/proc/{made.pid(part)}/status").splitlines())
        capabilities = {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")}
        assert capabilities <= {0, bits}, (part, capabilities)
        assert made.run("stat", "-c", "%U", f"/run/sysmond/{part}").strip() == f"sysmond-{part}"
        assert status["Uid"].split()[0] == made.run("id", "-u", f"sysmond-{part}").strip()
        assert status["NoNewPrivs"].strip() == "1", part


def programs_of_the_kernel_are_used_without_a_capability(made: Container) -> None:
    """The loader pinned them for the group of the parts."""
    programs = json.loads(made.file("/run/sysmond/bpf.json"))["programs"]
    if all("ok" in said for said in programs.values()):
        assert "by BPF, snapshot" in made.run("sysmonctl", "doctor", check=False)
    else:
        print(f"lab: this kernel refuses some: {programs}")


def both_classes_reach_the_disk(made: Container) -> None:
    """The archiver reads rings of other users by their group, and strangers do not."""
    made.run("sysmond", "flush")
    for sensitivity in ("public", "restricted"):
        found = made.run("find", f"/var/lib/sysmond/{sensitivity}", "-name", "*.h5").split()
        assert found, sensitivity
    assert len(made.run("sysmon-extract", "command", "--from=-1min").splitlines()) > 1
    setpriv = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
    said = made.run(*setpriv, "ls", "/run/sysmond/sampler/restricted", "/var/lib/sysmond/restricted", check=False)
    assert said.count("Permission denied") == 2, said
    said = made.run(*setpriv, "sysmond", "--runtime-dir=/run/sysmond", "flush", check=False)
    assert "only root and the user who runs it may give it orders" in said, said


def orders_reach_all_parts(made: Container) -> None:
    """By socket and by D-Bus."""
    assert "reloaded" in made.run("sysmond", "reload")
    for word, is_enabled in (("disable", False), ("enable", True)):
        made.run("sysmonctl", word, "probe", "zram")
        planned = json.loads(made.file("/run/sysmond/plan.json"))["probes"]
        assert [probe["enabled"] for probe in planned if probe["table"] == "zram"] == [is_enabled]
    made.run("sysmond", "mark", "checked")
    made.run("sysmond", "pin", "--", "-1min", "now")
    assert made.run("stat", "-c", "%U", "/var/lib/sysmond/pins.json").strip() == "sysmond-archiver"
    for words in (("pin", "--why=by bus", "--", "-1h", "-30min"), ("unpin", "--all")):
        before = made.run("sysmond", "pins")
        made.run("sysmonctl", *words)
        assert made.run("sysmond", "pins") != before, words
    said = made.run("sysmonctl", "status")
    assert all(part in said for part in RESIDENTS), said
    assert "state    running" in said, said


def callers_on_the_bus_get_what_their_class_may_see(made: Container) -> None:
    """The bus part may not read what is restricted: a reader that systemd starts answers who may."""
    stranger = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
    history = ("History", "asxxtasa{sv}", "1", "self/cpu@sampler", *"00000")
    restricted = ("GetRows", "sxxta{sv}", "process_private", *"0000")
    for words in (history, restricted, ("GetBudget", "a{sv}", "0")):
        said = made.run(*CALL, *words)
        assert json.loads(said)["data"][0], (words, said)
    assert "process_private" in made.run(*stranger, *CALL, *restricted, check=False)
    assert json.loads(made.run(*stranger, *CALL, *history))["data"][0]
    assert "Permission denied" in made.run(*stranger, *CALL, "GetBudget", "a{sv}", "0", check=False)
    ask = "import socket; socket.socket(socket.AF_UNIX).connect('/run/sysmond/reader')"
    other = ("setpriv", "--reuid=sysmond-sampler", "--regid=sysmond-parts", "--init-groups")
    assert "PermissionError" in made.run(*other, "python3", "-c", ask, check=False), "only the bus part may ask it"
    wait_for("no reader stays", lambda: not made.run("systemctl", "list-units", "--no-legend", "sysmond-reader@*"))


def each_part_comes_back(made: Container) -> None:
    """After a restart, and after it was killed."""
    for order in (("restart",), ("kill", "--signal=KILL")):
        for part in RESIDENTS:
            before = made.pid(part)
            made.run("systemctl", *order, f"sysmond-{part}.service")
            wait_for(f"{part} comes back after {order[0]}", partial(_has_another, made, part, before))
    all_run(made)


def _has_another(made: Container, part: str, before: int) -> bool:
    return made.pid(part) not in {0, before}


def the_bus_part_is_there_while_it_is_needed(made: Container) -> None:
    """It ends a minute after its last caller, in order, and comes back with the next."""
    unit = "sysmond-bus.service"
    assert _is_active(made, unit)
    wait_for("the bus part ends", lambda: not _is_active(made, unit), IDLE_S)
    assert made.run("systemctl", "show", "--value", "--property=Result", unit).strip() == "success"
    assert "state    running" in made.run("sysmonctl", "status")
    assert _is_active(made, unit)


def a_suspend_waits_for_the_archiver(made: Container) -> None:
    """It has logind's lock, whether or not the bus part runs."""
    wait_for("the lock", lambda: "sysmond-archiver" in made.run("systemd-inhibit", "--list", "--no-legend"))


def the_plan_is_used_again(made: Container) -> None:
    """Nothing that it was made of has changed since the last time."""
    made.run("systemctl", "restart", "sysmond-plan.service")
    made.run("systemctl", "restart", "sysmond-plan.service")
    assert "made-of.json" in made.run("ls", "/var/cache/sysmond")


def a_wrong_owner_is_one_line(made: Container) -> None:
    """Of the state folder and what is in it, as after a restore: recording goes on in RAM until it is mended."""
    made.run("systemctl", "stop", "sysmond-archiver.service")
    made.run("chown", "-R", "nobody:nogroup", "/var/lib/sysmond")
    since = f"--since=@{made.run('date', '+%s').strip()}"
    made.run("systemctl", "start", "sysmond-archiver.service")
    said = made.run("sysmond", "flush", check=False)
    assert "belongs to uid 65534" in said, said
    both_say(made, "archiver", "belongs to uid 65534")
    logged = made.run("journalctl", "-b", since, "-o", "cat", "-u", "sysmond-archiver.service")
    assert sum("belongs to uid 65534" in line for line in logged.splitlines()) == 1, logged
    assert "Traceback" not in logged, logged
    all_run(made)
    for classes, group in (("public", "sysmond-parts"), ("restricted", "sysmond")):
        made.run("chown", "-R", f"sysmond-archiver:{group}", f"/var/lib/sysmond/{classes}")
    made.run("sh", "-c", "chown sysmond-archiver:sysmond-parts /var/lib/sysmond /var/lib/sysmond/*.json")
    made.run("sysmond", "flush")
    all_is_well(made)


def both_say(made: Container, part: str, what: str) -> None:
    """Wait until systemctl and sysmonctl both say what a part lacks, and that it records."""
    unit = f"sysmond-{part}.service"
    wait_for(f"{unit} says: {what}", lambda: what in made.run("systemctl", "show", "--property=StatusText", unit))
    said = made.run("sysmonctl", "status")
    assert "state    degraded" in said, said
    assert f"lacks    {part}: " in said, said
    assert what in said, said
    all_run(made)


def all_is_well(made: Container) -> None:
    """Wait until nothing is lacking."""
    wait_for("nothing is lacking", lambda: "state    running" in made.run("sysmonctl", "status"))


def a_state_folder_that_is_read_only_is_said(made: Container) -> None:
    """As after an error of its file system: recording goes on in RAM, and to the disk when it can."""
    made.run("systemctl", "stop", "sysmond-archiver.service")
    made.run("mount", "-t", "tmpfs", "-o", "ro,mode=755", "lab", "/var/lib/sysmond")
    made.run("systemctl", "start", "sysmond-archiver.service")
    both_say(made, "archiver", "Read-only file system")
    made.run("systemctl", "stop", "sysmond-archiver.service")
    made.run("umount", "/var/lib/sysmond")
    made.run("systemctl", "start", "sysmond-archiver.service")
    all_is_well(made)


def foreign_files_in_the_state_folder_stop_nothing(made: Container) -> None:
    """Neither one that is called like ours, nor a folder."""
    folder = "/var/lib/sysmond/public/1s"
    made.run("sh", "-c", f"cd {folder} && echo nonsense >foreign.h5 && mkdir -p folder.h5 && touch ../x")
    made.run("sysmond", "mark", "foreign")
    made.run("sysmond", "flush")
    assert ticks(made) > 1
    all_is_well(made)
    made.run("sh", "-c", f"cd {folder} && rm -r foreign.h5 folder.h5 ../x")


def a_broken_drop_in_is_said_and_the_plan_before_holds(made: Container) -> None:
    """At a start, which nobody watches; a reload refuses it."""
    made.run(
        "sh", "-c", f"mkdir -p {BROKEN.rpartition('/')[0]} && echo 'probes: {{disk: {{interval: soon}}}}' >{BROKEN}"
    )
    assert "soon" in made.run("sysmond", "reload", check=False)
    made.run("systemctl", "restart", "sysmond.target", check=False)
    wait_for("the plan is refused", lambda: "failed" in made.run("systemctl", "is-active", PLAN_UNIT, check=False))
    all_run(made)
    said = made.run("systemctl", "status", "--no-pager", PLAN_UNIT, check=False)
    assert f"{BROKEN}:1" in said, said
    said = made.run("sysmonctl", "status")
    assert f"lacks    plan: {BROKEN}:1" in said, said
    made.run("rm", BROKEN)
    made.run("systemctl", "restart", PLAN_UNIT)
    all_is_well(made)


def a_full_run_folder_ends_nobody(made: Container) -> None:
    """What finds no room is dropped and counted; who restarts meanwhile comes back when there is room."""
    made.run("sh", "-c", "head -c 100G /dev/zero >/run/full 2>/dev/null", check=False)
    before = {part: made.pid(part) for part in RESIDENTS[:3]}
    made.run("systemctl", "restart", "sysmond-background.service", check=False)
    time.sleep(5.0)
    assert all(made.pid(part) == pid for part, pid in before.items() if part != "background")
    made.run("rm", "/run/full")
    all_run(made)
    logged = made.run("journalctl", "-b", "-o", "cat", "-u", "sysmond-*")
    assert "Traceback" not in logged, logged


def without_bpf_it_reads_proc(made: Container) -> None:
    """As on a kernel without it, or in a container that may not use it."""
    made.run(*LOADER, "--unload")
    for lane in ("sampler", "background"):
        made.run("systemctl", "restart", f"sysmond-{lane}.service")
    all_run(made)
    wait_for("processes", lambda: len(_said(made, "sysmon-extract", "process", "--from=-5s")) > 3)
    said = made.run("sysmonctl", "doctor", check=False)
    assert "by /proc; not by BPF: the BPF loader has not run" in said, said
    made.run("systemctl", "restart", "sysmond-bpf.service")
    for lane in ("sampler", "background"):
        made.run("systemctl", "restart", f"sysmond-{lane}.service")
    all_run(made)


def without_udev_and_bus_it_records(made: Container) -> None:
    """As in a container; nobody waits for either."""
    others = ("dbus.socket", "dbus.service", "systemd-udevd.service", "systemd-udevd-control.socket")
    made.run("systemctl", "mask", "--runtime", *others)
    made.run("systemctl", "stop", *others, "systemd-udevd-kernel.socket", check=False)
    for part in RESIDENTS[:3]:
        made.run("systemctl", "restart", f"sysmond-{part}.service")
    wait_for("rows", lambda: ticks(made) > 1)
    made.run("sysmond", "flush")
    said = made.run("sysmonctl", "status", check=False)
    assert len(said.splitlines()) == 1, said
    assert "Traceback" not in said, said
    made.run("systemctl", "unmask", "--runtime", *others)
    made.run("systemctl", "start", "systemd-udevd.service", "dbus.socket")
    all_run(made)


def a_part_whose_user_is_missing_costs_the_others_nothing(made: Container) -> None:
    """As after it was removed by hand; it comes back when its user does."""
    made.run("systemctl", "stop", "sysmond-background.service")
    made.run("sed", "-i", "/^sysmond-background:/d", "/etc/passwd", "/etc/shadow")
    made.run("systemctl", "start", "sysmond-background.service", check=False)
    said = made.run("systemctl", "status", "--no-pager", "sysmond-background.service", check=False)
    assert "user credentials" in said or "status=217/USER" in said, said
    said = made.run("sysmonctl", "status")
    assert "lacks    background: not there" in said, said
    assert ticks(made) > 1
    made.run("systemd-sysusers")
    all_run(made)
    all_is_well(made)


def a_second_recorder_of_its_folder_is_refused(made: Container) -> None:
    """In one line, and the first goes on."""
    words = ("sysmond", "--state-dir=/var/lib/sysmond", "--runtime-dir=/run/second")
    said = made.run("timeout", "20", *words, check=False)
    assert len(said.splitlines()) == 1, said
    all_is_well(made)


def an_interpreter_that_the_user_may_not_enter_is_one_line(made: Container) -> None:
    """As that of a virtual environment in somebody's home."""
    made.run("sh", "-c", "mkdir -m 700 -p /root/venv/bin && cp /usr/bin/python3 /root/venv/bin/")
    words = ("systemd-run", "--wait", "--quiet", "--unit=lab-venv.service", "--property=User=sysmond-sampler")
    made.run(*words, "/root/venv/bin/python3", "-I", "-m", "sysmond.daemon.part", "sampler", check=False)
    said = made.run("journalctl", "-b", "-o", "cat", "-u", "lab-venv.service")
    assert sum("status=203/EXEC" in line for line in said.splitlines()) == 1, said
    assert "Traceback" not in said, said


def a_user_that_is_missing_is_one_line(made: Container) -> None:
    """As after it was removed by hand."""
    words = ("systemd-run", "--wait", "--quiet", "--unit=lab-user.service", "--property=User=sysmond-nobody")
    made.run(*words, "/usr/bin/python3", "-I", "-m", "sysmond.daemon.part", "sampler", check=False)
    said = made.run("journalctl", "-b", "-o", "cat", "-u", "lab-user.service")
    assert sum("user credentials" in line for line in said.splitlines()) == 1, said


def what_it_costs(made: Container) -> None:
    """Figures for docs/design/0013-service.md."""
    for part in RESIDENTS:
        fields = made.file(f"/proc/{made.pid(part)}/stat").rpartition(") ")[2].split()
        own_ms, children_ms = (sum(map(int, fields[at : at + 2])) * 10 for at in (11, 13))
        print(f"lab: {part}: {own_ms} ms CPU, its children {children_ms} ms")
    print(made.run("systemd-analyze", "critical-chain", "--no-pager", "multi-user.target"))


def what_it_takes(made: Container) -> None:
    """Memory, as a figure for the same: a minute after each part has started, which the check before waited for."""
    for part in RESIDENTS:
        mapped = _MAPPED.findall(made.file(f"/proc/{made.pid(part)}/smaps"))
        rings_kib = sum(int(size) for path, size in mapped if path.endswith(".ring"))
        print(f"lab: {part}: {sum(int(size) for _, size in mapped)} KiB PSS, {rings_kib} of it rings")


CHECKS = (
    what_it_costs,
    each_part_is_its_own_user_with_its_own_capabilities,
    programs_of_the_kernel_are_used_without_a_capability,
    both_classes_reach_the_disk,
    orders_reach_all_parts,
    callers_on_the_bus_get_what_their_class_may_see,
    each_part_comes_back,
    a_suspend_waits_for_the_archiver,
    the_bus_part_is_there_while_it_is_needed,
    what_it_takes,
)
# These leave traces in the folder of the archive.
TROUBLES = (
    the_plan_is_used_again,
    a_wrong_owner_is_one_line,
    a_state_folder_that_is_read_only_is_said,
    foreign_files_in_the_state_folder_stop_nothing,
    a_broken_drop_in_is_said_and_the_plan_before_holds,
    a_full_run_folder_ends_nobody,
    without_bpf_it_reads_proc,
    without_udev_and_bus_it_records,
    a_part_whose_user_is_missing_costs_the_others_nothing,
    a_second_recorder_of_its_folder_is_refused,
    an_interpreter_that_the_user_may_not_enter_is_one_line,
    a_user_that_is_missing_is_one_line,
)


def a_shutdown_puts_all_on_the_disk(made: Container) -> None:
    """The last rows of the lanes, too: what is in RAM goes with the container."""
    last_ns = _last_ns(made)
    assert last_ns
    made.run("systemctl", "poweroff", check=False)
    made.process.wait(BOOT_S)
    state = str(ROOT / "var/lib/sysmond")
    stored_ns = int(Archive(Folders(state, state)).select("load/tasks", raw=True).times_ns[-1])
    assert stored_ns >= last_ns, (stored_ns, last_ns)


def _last_ns(made: Container) -> int:
    """When the newest row was recorded, in UTC nanoseconds and whole seconds; 0 for none."""
    *_, last = made.run("sysmon-extract", "load/tasks", "--from=-10s").splitlines()
    return int(datetime.fromisoformat(last.partition(",")[0]).timestamp()) * 10**9


@contextmanager
def held_back() -> Iterator[None]:
    """The folder of the archive is a file system that is mounted when the check says so."""
    folder = ROOT / "etc/systemd/system"
    for path in ("srv/late", "var/lib/sysmond"):
        shutil.rmtree(ROOT / path, ignore_errors=True)
    (ROOT / "srv/late").mkdir()
    for name, text in LATE.items():
        (folder / name).write_text(text)
    try:
        yield
    finally:
        for name in LATE:
            (folder / name).unlink()


def it_records_in_ram_while_var_is_held_back(made: Container) -> None:
    """From early in the boot on; then all of that is on the disk, the seconds before /var too."""
    for part in ("sampler", "background"):
        wait_for(part, partial(_is_active, made, f"sysmond-{part}.service"))
    wait_for("rows", lambda: len(_seconds(made)) > HELD_BACK_S)
    assert not _is_active(made, "sysmond-archiver.service")
    first_s, late = _seconds(made)[0], ROOT / "srv/late"
    assert not list(late.iterdir())
    made.run("touch", "/run/lab-late")
    wait_for("the archiver runs", partial(_is_active, made, "sysmond-archiver.service"))
    made.run("sysmond", "flush")
    stored = Archive(Folders(str(late), str(late))).select("load/tasks", raw=True).times_ns
    assert int(stored[0]) // 10**9 == first_s, (int(stored[0]), first_s)
    all_is_well(made)


def a_soft_reboot_keeps_what_was_recorded(made: Container) -> None:
    """All of the boot: the kernel is the same, and so is its clock."""
    before_s = _seconds(made)
    before = {part: made.pid(part) for part in RESIDENTS[:3]}
    made.run("timeout", "5", "systemctl", "soft-reboot", check=False)

    def is_back() -> bool:
        """Whoever asks process 1 while it makes way for itself is never answered."""
        return made.run("timeout", "5", "systemctl", "is-system-running", check=False).strip() in UP

    # It is still up for a moment.
    wait_for(
        "the parts come back", lambda: is_back() and all(_has_another(made, *each) for each in before.items()), BOOT_S
    )
    all_run(made)
    after_s = _seconds(made)
    assert set(before_s) <= set(after_s), sorted(set(before_s) - set(after_s))
    lost = max(later - sooner for sooner, later in pairwise(after_s)) - 1
    print(f"lab: seconds without a row over a soft-reboot: {lost}")


def _seconds(made: Container) -> list[int]:
    """When rows of the last minutes were recorded, in whole seconds."""
    said = made.run("sysmon-extract", "load/tasks", "--raw", "--epoch", "--from=-5min", check=False).splitlines()
    return [int(line.partition(".")[0].partition(",")[0]) for line in said if line[:1].isdigit() and line[-1] != ","]


AGAIN = (it_records_in_ram_while_var_is_held_back, a_soft_reboot_keeps_what_was_recorded)


def missing() -> str:
    """Why it cannot run here; nothing where it can."""
    if os.geteuid():
        return "only root can boot a container"
    return lab.missing({**TOOLS, "git": "git"})


def failures(made: Container, checks: Iterable[Callable[[Container], None]]) -> int:
    """Run checks, say of each how it ended, and give how many failed."""
    failed = 0
    for check in checks:
        try:
            check(made)
        except (AssertionError, subprocess.TimeoutExpired) as failure:
            failed += 1
            print(f"{check.__name__} FAILED: {failure}", flush=True)
        else:
            print(f"{check.__name__} PASSED", flush=True)
    return failed


def main() -> int:
    """Build what is missing, boot, check."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--keep", action="store_true", help="leave the container running")
    options.add_argument(
        "-k", dest="word", metavar="WORD", default="", help="run the checks that have this in their name"
    )
    chosen = options.parse_args()
    if reason := missing():
        print(f"lab: {reason}", file=sys.stderr)
        return 2
    try:
        build()
    except subprocess.CalledProcessError as failure:
        print(f"lab: {failure.cmd[0]} failed, as it says above", file=sys.stderr)
        return 2
    from tests.lab import acts  # noqa: PLC0415  it needs what is here

    def wanted(checks: Iterable[Callable[[Container], None]]) -> list[Callable[[Container], None]]:
        return [each for each in checks if chosen.word in f"{each.__module__}.{each.__name__}"]

    failed = 0
    checks = wanted([*CHECKS, *acts.CHECKS, *TROUBLES, *([] if chosen.keep else [a_shutdown_puts_all_on_the_disk])])
    again = [] if chosen.keep else wanted(AGAIN)
    if checks or not again:
        with booted(stays=chosen.keep) as made:
            failed = failures(made, [all_run, *checks])
    if again:
        with held_back(), booted(states=UP | {"starting"}) as made:
            failed += failures(made, again)
    print(f"lab: {'FAILED' if failed else 'passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    from tests.lab import service  # Under its own name, by which others import it.

    sys.exit(service.main())
