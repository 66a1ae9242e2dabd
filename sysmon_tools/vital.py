# SPDX-License-Identifier: Apache-2.0
"""What must not be frozen, because nobody could thaw it any more, or see that he should. Pure.

A frozen control group stands still with all that is below it. So one is refused if any of these processes is in it, or
below it: the first one, what systemd, D-Bus, logind, polkit and journald are, display servers, sshd, and all through
which whoever asks is here: this program, its ancestors, and clients of terminal multiplexers with theirs. So is the
recorder, whose watchdog would end it.

Processes are known by the names that the kernel has of them, and those that have a display by what ``displays`` learns
of them as well. One that calls itself so is in the way of freezing; one
that does harm by calling itself otherwise is nothing that this is about. The recorder's are known by their units.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

_COMM_MAX = 15  # The kernel cuts names to that.

_DISPLAY = "a display server"
_LOGIN = "lets people log in"
# By the name of a process: what stands still with it.
_NAMES = {
    **dict.fromkeys(("systemd", "init", "systemd-executor"), "starts and ends everything else, and would thaw it"),
    **dict.fromkeys(("dbus-daemon", "dbus-broker", "dbus-broker-launch"), "D-Bus, by which it would be thawed"),
    **dict.fromkeys(("systemd-logind", "elogind-daemon", "elogind"), _LOGIN),
    **dict.fromkeys(("sshd", "sshd-session", "sshd-auth", "dropbear"), _LOGIN),
    **dict.fromkeys(("gdm", "gdm3", "gdm-wayland-session", "gdm-x-session", "sddm", "lightdm", "greetd"), _LOGIN),
    "agetty": _LOGIN,
    "polkitd": "decides who may thaw it",
    "systemd-journald": "everybody who logs waits for it",
    "systemd-udevd": "devices come through it",
    **dict.fromkeys(("X", "Xorg", "Xorg.bin", "Xwayland", "Xtigervnc", "Xvnc", "gnome-shell", "mutter"), _DISPLAY),
    **dict.fromkeys(("kwin_wayland", "kwin_wayland_wrapper", "kwin_x11", "cinnamon", "muffin", "xfwm4"), _DISPLAY),
    **dict.fromkeys(("sway", "weston", "Hyprland", "labwc", "river", "wayfire", "niri", "cosmic-comp"), _DISPLAY),
    **dict.fromkeys(("phoc", "phosh", "cage", "gamescope", "enlightenment"), _DISPLAY),
}
VITAL = {name[:_COMM_MAX]: why for name, why in _NAMES.items()}
# These show a terminal inside another one, whose program is no ancestor of what runs in it.
CLIENTS = frozenset({"tmux: client", "tmux: server", "screen", "SCREEN", "zellij"})
_HAS_DISPLAY = "it has a display, or leads the session that has it"
_OURS = "you are here through it"
_SELF = "this is what you look at"
_RECORDER = re.compile(r"/sysmond(-[^/]*)?\.service(/|$)")
_RECORDS = "it records this machine"


class Presence(NamedTuple):
    """A process that is there; ``cgroup``: its path in version 2."""

    pid: int
    parent: int
    comm: str
    cgroup: str


def why_not(path: str, processes: Iterable[Presence], own_pid: int, displays: Collection[int] = ()) -> str:
    """Say why a control group must not be frozen, naming the process that is the reason; empty where it may be.

    ``processes``: all of the machine. Where the first is not among them, not all are seen, and nothing may be frozen.
    ``displays``: the numbers of those that have a display, whatever they are called.
    """
    known = {process.pid: process for process in processes}
    if not path.strip("/"):
        return "it is the root, below which everything is"
    if 1 not in known or own_pid not in known:
        return "not all processes can be seen here (hidepid), so it may hold one that must go on"
    seen_by = {own_pid, *(process.pid for process in known.values() if process.comm in CLIENTS)}
    ours = seen_by.union(*(ancestors(pid, known) for pid in seen_by))
    for process in sorted(known.values()):
        if not is_below(process.cgroup, path):
            continue
        if reason := _reason(process, own_pid, ours) or (_HAS_DISPLAY if process.pid in displays else ""):
            return f"process {process.pid} ({process.comm}) is in it: {reason}"
    return ""


def is_below(cgroup: str, path: str) -> bool:
    """Whether a control group is that one, or somewhere below it."""
    return f"{cgroup.rstrip('/')}/".startswith(f"{path.rstrip('/')}/")


def _reason(process: Presence, own_pid: int, ours: Collection[int]) -> str:
    if process.pid == 1:
        return "it is the first process"
    if process.comm in VITAL:
        return VITAL[process.comm]
    if process.pid == own_pid:
        return _SELF
    if process.pid in ours:
        return _OURS
    return _RECORDS if _RECORDER.search(process.cgroup) else ""


def ancestors(pid: int, known: Mapping[int, Presence]) -> set[int]:
    """Who started a process, who started that one, and so on; not itself."""
    above: set[int] = set()
    while pid in known and known[pid].parent not in above:
        pid = known[pid].parent
        above.add(pid)
    return above
