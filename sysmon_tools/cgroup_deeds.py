# SPDX-License-Identifier: Apache-2.0
"""What is done to a control group that is no unit of systemd: a signal to all in it, freezing for a while, thawing.

The thaw is armed first: a guardian, a shell in a session of its own, opens the group's ``cgroup.freeze``, freezes it
and thaws it when its time is over, whatever becomes of us. It is outside of what is frozen, for it is where we are.

Source: the kernel's ``Documentation/admin-guide/cgroup-v2.rst``.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

from sysmon_tools.vital import Presence, is_below
from sysmond.cgroups.tree import MOUNTINFO, hierarchies
from sysmond.errors import Error, NotPermittedError, refusal

_FREEZE, _EVENTS, _PROCESSES = "cgroup.freeze", "cgroup.events", "cgroup.procs"
_V2 = "0::"
_FROZEN, _RUNNING, _IS_FROZEN = "1", "0", "frozen 1"
# As long as it is frozen, the guardian looks once a second: somebody else may have thawed it, and then it is done. The
# clock goes on while the machine sleeps. What is sent to end the guardian thaws at once.
_GUARDIAN = f"""
file=$1/{_FREEZE}
exec 3>"$file"
read -r up rest </proc/uptime
end=$((${{up%.*}} + $2))
(
trap 'exit 0' HUP INT TERM
trap 'echo {_RUNNING} >&3' EXIT
echo {_FROZEN} >&3 && echo frozen
exec </dev/null >/dev/null 2>&1
while read -r state <"$file" && [ "$state" = {_FROZEN} ] && read -r up rest </proc/uptime && [ "${{up%.*}}" -lt $end ]
do sleep 1
done
) &
"""


def folder_of(path: str) -> str:
    """Where a control group of version 2 is; ``path`` as in /proc/PID/cgroup.

    :raises Error: where there is none.
    """
    with open(MOUNTINFO, "rb") as file:
        points = [mounted.point for mounted in hierarchies(file.read()) if not mounted.controllers]
    folder = f"{points[0]}{path.rstrip('/')}" if points else ""
    if not os.path.exists(f"{folder}/{_PROCESSES}"):
        raise Error(f"{path}: not a control group of version 2")
    return folder


def presences() -> Iterator[Presence]:
    """All processes of the machine that can be seen, with their control groups of version 2."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError, IndexError, ValueError):  # It has ended meanwhile.
                with open(f"/proc/{name}/stat", "rb") as file:
                    before, _, behind = file.read().rpartition(b")")
                comm = before.partition(b"(")[2].decode("utf-8", "replace")
                yield Presence(int(name), int(behind.split()[1]), comm, _cgroup(name))


def freeze(path: str, for_s: int) -> None:
    """Arm the thaw, and freeze.

    :raises Error: where it is not there, or frozen already. :raises NotPermittedError: where we may not.
    """
    folder = folder_of(path)
    try:
        with open(f"{folder}/{_FREEZE}", "r+", encoding="ascii") as file:
            state = file.read().strip()
    except OSError as problem:
        raise _refused(path, problem) from None
    if state != _RUNNING:
        raise Error(f"{path}: already frozen")
    words = ["/bin/sh", "-c", _GUARDIAN, "sysmon-thaw", folder, str(for_s)]
    done = subprocess.run(words, capture_output=True, check=False, start_new_session=True)  # noqa: S603  a constant
    if b"frozen" not in done.stdout:
        lines = done.stderr.decode("utf-8", "replace").split("\n")
        raise Error(f"{path}: the thaw could not be scheduled, so nothing was frozen: {lines[0]}")


def thaw(path: str) -> None:
    """Let it go on; its guardian sees that, and ends.

    :raises Error: where it is not there. :raises NotPermittedError: where we may not.
    """
    try:
        with open(f"{folder_of(path)}/{_FREEZE}", "w", encoding="ascii") as file:
            file.write(_RUNNING)
    except OSError as problem:
        raise _refused(path, problem) from None


def frozen_by(root: str, path: str) -> str:
    """The nearest control group that somebody froze, at a path or above it; empty where all of it runs.

    ``root``: the folder of the root.

    :raises OSError: where it is not there.
    """
    with open(f"{root}{path}/{_EVENTS}", encoding="ascii") as file:
        if _IS_FROZEN not in file.read().split("\n"):
            return ""
    while path.strip("/"):
        with open(f"{root}{path}/{_FREEZE}", encoding="ascii") as file:
            if file.read().strip() == _FROZEN:
                return path
        path = path.rpartition("/")[0]
    return ""


def send(path: str, number: signal.Signals) -> int:
    """Send a signal to all processes in it and below it; gives how many there were.

    :raises Error: where there is none. :raises NotPermittedError: where one is not ours; others have it by then.
    """
    sent = 0
    refused: OSError | None = None
    for process in [one for one in presences() if is_below(one.cgroup, path)]:
        try:
            meant = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            if is_below(_cgroup(str(process.pid)), path):  # The number is of the same, or of one that is meant as well.
                signal.pidfd_send_signal(meant, number)
                sent += 1
        except (ProcessLookupError, FileNotFoundError, IndexError):
            continue
        except OSError as problem:
            refused = problem
        finally:
            os.close(meant)
    if refused is not None:
        raise _refused(path, refused)
    if not sent:
        raise Error(f"{path}: there are no processes in it")
    return sent


def cgroup_of(pid: int) -> str:
    """The control group of version 2 in which a process is.

    :raises OSError: where it has ended.
    """
    return _cgroup(str(pid))


def _cgroup(pid: str) -> str:
    with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        lines = [line.removeprefix(_V2) for line in file.read().split("\n") if line.startswith(_V2)]
    return lines[0].removesuffix(" (deleted)")


def _refused(path: str, problem: OSError) -> Error:
    if isinstance(problem, PermissionError):
        return NotPermittedError(f"{path}: no permission")
    return Error(f"{path}: {refusal(problem)}")
