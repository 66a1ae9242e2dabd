# SPDX-License-Identifier: Apache-2.0
"""A machine with the packages, booted: from their installation to their removal, and the same from a wheel.

``make check-package`` runs it, where systemd-nspawn is: the container shares the kernel. Each check goes on where the
one before has left the machine, so the first that fails is the last. What docs/admin.md tells to type is typed here.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
from sysmond.base.clock import SECOND_NS
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from tests.lab import lab, service
from tests.lab.service import PACKAGES, Container, all_run, booted, wait_for

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = tuple(name for name in PACKAGES if name != "smartmontools")
"""What a machine has before: systemd, and what the packages need, so that installing them fetches nothing."""
BACKUP = "/srv/backup"
NEXT = "+next"
# What comes and goes has no series through an upgrade.
FLEETING = ("cgroup", "process")
INTERPRETER = "/opt/sysmond/bin/python3"


def why_not() -> str:
    """Why it cannot run here; nothing where it can."""
    return lab.missing({"systemd-nspawn": "systemd-container", "nsenter": "util-linux", "dpkg-deb": "dpkg"})


def check(machine: Path, packages: Sequence[Path], work: Path) -> None:
    """Copy a machine, install the packages there, and go through all of it."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        root = Path(folder) / "root"
        subprocess.run(["cp", "-a", "--reflink=auto", machine, root], check=True)
        for path in packages:
            shutil.copy(path, root / "opt")
        with booted(root) as made:
            _run_all(made, is_installed, the_guide_tunes_and_looks, the_guide_says_who_reads_what)
            _run_all(made, the_guide_moves_an_archive)
        began_s = time.time()
        with booted(root) as made:
            _run_all(made, partial(it_records_after_a_boot, began_s))
            _run_all(made, people_change_what_polkit_lets_them, what_is_gathered_for_a_bug_names_no_host)
            newer(root, packages)
            _run_all(made, partial(an_upgrade_costs_a_tick_at_most, root), removal_keeps_what_was_recorded)
            wheel(root)
            _run_all(made, a_wheel_installs_the_same_service)


def _run_all(made: Container, *checks: Callable[[Container], None]) -> None:
    for each in checks:
        print(f"boot: {getattr(each, 'func', each).__name__.replace('_', ' ')} ...", flush=True)
        each(made)


def install(made: Container, pattern: str = "/opt/*.deb") -> None:
    """As an administrator does it, without a question."""
    words = f"DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install {pattern}"
    made.run("sh", "-c", words)


def is_installed(made: Container) -> None:
    """Installing enables and starts it, at once."""
    install(made)
    all_run(made)
    assert made.run("systemctl", "is-enabled", "sysmond.target").strip() == "enabled"
    for unit in ROOT.glob("etc/systemd/system/*"):
        assert (
            made.run("systemctl", "show", "--value", "--property=LoadState", unit.name.replace("@.", "@0.")).strip()
            == "loaded"
        ), unit.name
    failed = made.run("systemctl", "list-units", "--failed", "--no-legend", "sysmond*")
    assert not failed, failed


def typed(made: Container, words: str, expected: str = "") -> None:
    """Type what docs/admin.md has, word for word, as root; NAME is joe."""
    assert words in (ROOT / "docs/admin.md").read_text(), words
    told = made.run("sh", "-c", f"cd / && {words.replace('NAME', 'joe')}")
    assert expected in told, (words, told)


def the_guide_tunes_and_looks(made: Container) -> None:
    """What runs, what it costs, what is recorded; a wrong configuration names its line."""
    typed(made, "systemctl status 'sysmond*'", "sysmond-sampler.service")
    typed(made, "sysmonctl status", "running")
    typed(made, "sysmonctl doctor", "real-time scheduling")
    typed(made, "sysmonctl set probe process interval 5s", "interval: 5s")
    made.run("sysmonctl", "set", "probe", "process", "interval", "default")
    typed(made, "sysmonctl overhead", "sampler")
    typed(made, "sysmonctl disable probe process", "disabled")
    made.run("sysmonctl", "enable", "probe", "process")
    typed(made, "sysmonctl list probes", "memory")
    mine = "/etc/sysmond/conf.d/mine.yaml"
    made.run("sh", "-c", f"mkdir -p /etc/sysmond/conf.d && echo 'archive: {{flush_interval: 5min}}' >{mine}")
    typed(made, "sysmond reload", "reloaded")
    assert "5min" in next(line for line in made.run("sysmonctl", "config").splitlines() if "flush_interval" in line)
    made.run("sh", "-c", f"echo 'archive: {{flush_intervall: 5min}}' >{mine}")
    assert "mine.yaml:1" in made.run("sysmond", "reload", check=False)
    made.run("rm", mine)
    typed(made, "sysmond budget", "1s")
    typed(made, "sysmond budget --config /etc/sysmond/sysmond.yaml", "1s")
    typed(made, "journalctl -u 'sysmond*' -b", "sysmond")
    typed(made, "sysmonctl report-bug", "Nothing has been written yet")
    typed(made, "sysmonctl report-bug --output-file report.tar.gz", "Written to report.tar.gz")


def the_guide_says_who_reads_what(made: Container) -> None:
    """Commands of others are for members of the group."""
    made.run("useradd", "--create-home", "joe")
    as_joe = ("setpriv", "--reuid=joe", "--regid=joe", "--init-groups")
    of_machine = ("sysmon-extract", "--state-dir", "/var/lib/sysmond", "command", "--from=-1min")
    assert " ".join(of_machine[:3]) in (ROOT / "docs/admin.md").read_text()
    wait_for("rows of commands", lambda: len(made.run("sysmon-extract", "command", "--from=-1min").splitlines()) > 1)
    refused = made.run(*as_joe, *of_machine, check=False)
    assert "permi" in refused.lower(), refused
    typed(made, "usermod -aG sysmond NAME")
    assert len(made.run(*as_joe, *of_machine).splitlines()) > 1


def the_guide_moves_an_archive(made: Container) -> None:
    """Out and back, with owners that are wrong meanwhile."""
    made.run("mkdir", "-p", BACKUP)
    typed(made, "sysmond flush", "flushed")
    typed(made, "cp -a /var/lib/sysmond /srv/backup/")
    there = "sysmon-extract --state-dir /srv/backup/sysmond memory/available --from=-1d"
    typed(made, there, "memory/available")
    typed(made, "systemctl stop sysmond.target 'sysmond-*'")
    assert not _parts(made)
    typed(made, "rm -r /var/lib/sysmond")
    typed(made, "cp -a /srv/backup/sysmond /var/lib/")
    made.run("chown", "-R", "12345:12345", "/var/lib/sysmond")
    typed(made, "chown -R sysmond-archiver:sysmond-parts /var/lib/sysmond")
    typed(made, "chgrp -R sysmond /var/lib/sysmond/restricted")
    typed(made, "systemctl start sysmond.target")
    all_run(made)
    typed(made, "sysmond flush", "flushed")
    typed(made, "sysmond fsck")


def _parts(made: Container) -> str:
    """The processes of sysmond that are there."""
    return made.run("sh", "-c", "grep -lz 'sysmond[.]daemon' /proc/[0-9]*/cmdline 2>/dev/null || true")


def it_records_after_a_boot(began_s: float, made: Container) -> None:
    """By itself; the boot does not wait for it."""
    all_run(made)
    rows = made.run("sysmon-extract", "load/tasks", "--epoch", f"--from=@{began_s:.0f}", "--raw").splitlines()
    first_s = next(float(line.split(",")[0]) for line in rows if line[:1].isdigit() and not line.endswith(","))
    print(f"boot: first sample {first_s - began_s:.1f} s after the container was started")
    chain = made.run("systemd-analyze", "critical-chain", "--no-pager", "multi-user.target")
    assert "sysmond" not in chain, chain


def people_change_what_polkit_lets_them(made: Container) -> None:
    """Root may; an ordinary user is refused, and nothing changes."""
    assert "disabled" in made.run("sysmonctl", "disable", "probe", "zram")
    made.run("sysmonctl", "enable", "probe", "zram")
    before = made.run("sysmonctl", "list", "probes")
    as_joe = ("setpriv", "--reuid=joe", "--regid=joe", "--clear-groups")
    for words in (("disable", "probe", "memory"), ("set", "probe", "load", "interval", "5s"), ("flush",)):
        told = made.run(*as_joe, "sh", "-c", f"sysmonctl {' '.join(words)}; echo exit code $?")
        assert "exit code 77" in told, told
    assert made.run("sysmonctl", "list", "probes") == before
    assert "running" in made.run(*as_joe, "sysmonctl", "status")


def what_is_gathered_for_a_bug_names_no_host(made: Container) -> None:
    """Nor a user of the machine, and it has the journal of its units."""
    made.run("sh", "-c", "cd /root && sysmonctl report-bug -o report && mkdir unpacked && tar -xzf report -C unpacked")
    said = made.run("sh", "-c", "cat /root/unpacked/*/*")
    host = made.run("uname", "-n").strip()
    assert host not in said.split(), host
    assert "joe" not in said.split()
    assert "sysmond-sampler.service" in made.run("sh", "-c", "cat /root/unpacked/*/units.txt")
    assert "systemd[1]: Started" in made.run("sh", "-c", "cat /root/unpacked/*/journal.txt")


def newer(root: Path, packages: Sequence[Path]) -> None:
    """Make packages of the next version of those that were built; nothing else in them is another."""
    for path in packages:
        with tempfile.TemporaryDirectory() as folder:
            content = Path(folder) / "content"
            subprocess.run(["dpkg-deb", "--raw-extract", path, content], check=True)
            control = content / "DEBIAN/control"
            lines = control.read_text().splitlines()
            (version,) = (line.split(": ")[1] for line in lines if line.startswith("Version: "))
            control.write_text(control.read_text().replace(version, version + NEXT))
            target = root / "opt/next" / path.name
            target.parent.mkdir(exist_ok=True)
            subprocess.run(["dpkg-deb", "--build", content, target], check=True, stdout=subprocess.DEVNULL)


def an_upgrade_costs_a_tick_at_most(root: Path, made: Container) -> None:
    """Of each table that is read every second, over dpkg's whole run; what was set stays."""
    made.run("sh", "-c", "echo '# Mine.' >>/etc/sysmond/sysmond.yaml")
    before = {part: made.pid(part) for part in service.RESIDENTS if part != "bus"}  # That one comes when it is asked.
    began_ns = time.time_ns()
    install(made, "/opt/next/*.deb")
    for part, pid in before.items():
        wait_for(f"another {part} runs", partial(_is_another, made, part, pid))
    all_run(made)
    ended_ns = time.time_ns()
    assert NEXT in made.run("dpkg-query", "--show", "--showformat=${Version}", "sysmond")
    assert made.file("/etc/sysmond/sysmond.yaml").endswith("# Mine.\n")
    made.run("sysmond", "flush")
    state = str(root / "var/lib/sysmond")
    archive = Archive(Folders(state, state))
    entries = [entry for entry in archive.catalogue() if entry.interval_ns == SECOND_NS and entry.start_ns < began_ns]
    paths = {entry.path.partition("/")[0]: entry.path for entry in entries if not entry.path.startswith(FLEETING)}
    assert {"load", "memory", "disk", "self"} & paths.keys() >= {"load", "memory"}, paths
    lost = {}
    for table, path in paths.items():
        answer = archive.select(path, start=began_ns - 10 * SECOND_NS, end=ended_ns, raw=True)
        longest_ns = max(after - before for before, after in pairwise(map(int, answer.times_ns)))
        lost[table] = round(longest_ns / SECOND_NS) - 1
    print(f"boot: ticks of a second that the upgrade cost, at most: {max(lost.values())}, of {len(lost)} tables")
    assert max(lost.values()) <= 1, lost


def _is_another(made: Container, part: str, pid: int) -> bool:
    return made.pid(part) not in {0, pid}


def _names(made: Container) -> set[str]:
    return set(made.run("find", "/var/lib/sysmond", "-name", "*.h5").split())


def _holds(merged: str, name: str) -> bool:
    """Whether a file (FOLDER/BOOT-FIRST-LAST.h5) is of the same folder and boot, and of all that another is of."""
    (folder, whole), (other_folder, part) = (path.rsplit("/", 1) for path in (merged, name))
    boot, first, last = whole.removesuffix(".h5").rsplit("-", 2)
    other_boot, other_first, other_last = part.removesuffix(".h5").rsplit("-", 2)
    return (folder, boot) == (other_folder, other_boot) and first <= other_first and other_last <= last


def removal_keeps_what_was_recorded(made: Container) -> None:
    """And nothing runs any more; purging removes it."""
    before = _names(made)
    assert before
    made.run("sh", "-c", "apt-get -qq -y remove sysmond")
    assert not _parts(made)
    after = _names(made)
    # What was flushed just before may be merged by now: a file whose number is not there lies in a larger one.
    lost = {name for name in before - after if not any(_holds(other, name) for other in after)}
    assert not lost, lost
    made.run("sh", "-c", "apt-get -qq -y purge sysmond python3-sysmond sysmond-doc")
    left = made.run(
        "sh", "-c", "ls -d /var/lib/sysmond /var/cache/sysmond /etc/sysmond /run/sysmond 2>/dev/null || true"
    )
    assert not left, left


def wheel(root: Path) -> None:
    """Put the project into an environment below /opt of a machine, as pip does from a wheel."""
    lab.package(root / "opt/built", root / "opt/sources")


def a_wheel_installs_the_same_service(made: Container) -> None:
    """With its own interpreter; and nothing but what was recorded is left when it is removed."""
    made.run("sh", "-c", "python3 -m venv --without-pip --system-site-packages /opt/sysmond")
    made.run("sh", "-c", "cp -r /opt/built/sysmon* /opt/sysmond/lib/python3*/site-packages/")
    before = made.run("sh", "-c", "find /etc /usr -type f -o -type l | grep -v __pycache__ | sort").splitlines()
    run = (INTERPRETER, "-I", "-m", "sysmond", "service")
    made.run("chmod", "700", "/opt/sysmond")
    told = made.run(*run, "install", check=False)
    assert told == "sysmond: /opt/sysmond: mode 0700: the users of the service cannot enter; expected o+rx\n", told
    made.run("chmod", "755", "/opt/sysmond")
    made.run("chown", "joe", "/opt/sysmond/lib")
    assert "belongs to uid" in made.run(*run, "install", check=False)
    made.run("chown", "root", "/opt/sysmond/lib")
    assert "sysmond.target is enabled and running" in made.run(*run, "install")
    made.run(
        "sh",
        "-c",
        "for program in sysmond sysmonctl sysmon-extract; do ln -s /opt/sysmond/bin/$program /usr/bin/; done",
    )
    for program, function in service.PROGRAMS.items():
        text = f"#!{INTERPRETER} -I\\nimport sys\\nfrom sysmond.entry import {function}\\nsys.exit({function}())\\n"
        made.run("sh", "-c", f"printf '{text}' >/opt/sysmond/bin/{program}; chmod 755 /opt/sysmond/bin/{program}")
    all_run(made)
    assert INTERPRETER in made.run("cat", f"/proc/{made.pid('sampler')}/cmdline")
    assert "disabled" in made.run("sysmonctl", "disable", "probe", "zram")
    made.run("sysmond", "flush")
    assert "kept: recordings" in made.run(*run, "uninstall")
    assert not _parts(made)
    assert made.run("find", "/var/lib/sysmond", "-name", "*.h5")
    made.run("sh", "-c", "rm /usr/bin/sysmon*")
    after = made.run("sh", "-c", "find /etc /usr -type f -o -type l | grep -v __pycache__ | sort").splitlines()
    new = {path for path in set(after) - set(before) if not path.startswith("/etc/sysmond/conf.d/")}
    assert not new, new


if __name__ == "__main__":
    work = ROOT / "build/package"
    machines = [path for path in work.glob("machine-*") if path.suffix != ".unfinished"]
    if os.geteuid() or why_not() or not machines:
        sys.exit(f"boot: {why_not() or 'only root, and after make check-package'}")
    check(machines[0], sorted((ROOT / "dist").glob("*.deb")), work)
    print("boot: passed")
