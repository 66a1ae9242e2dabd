# SPDX-License-Identifier: Apache-2.0
"""Whether this machine shows everybody's processes to everybody: only then are tables about them public.

Source: proc(5), mount option hidepid: ``0`` or ``off`` shows all; ``1 2 4`` and ``noaccess invisible ptraceable`` hide.
"""

from sysmond.base.model import Sensitivity

_SHOWN = frozenset({"0", "off"})


def sensitivity() -> Sensitivity:
    """Say who may read about processes on this machine; not everybody where that is unknown."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return of_mounts(file.read())
    except OSError:
        return Sensitivity.RESTRICTED


def of_mounts(mountinfo: str) -> Sensitivity:
    """Say the same from the text of a mountinfo: the proc mounted last at /proc counts, since users see that one."""
    last = Sensitivity.PUBLIC
    for line in mountinfo.splitlines():
        place, _, behind = line.partition(" - ")
        words = behind.split()
        if len(words) == 3 and words[0] == "proc" and place.split()[4:5] == ["/proc"]:  # noqa: PLR2004  type, source, options
            hidden = [option[8:] for option in words[2].split(",") if option.startswith("hidepid=")]
            last = Sensitivity.RESTRICTED if set(hidden) - _SHOWN else Sensitivity.PUBLIC
    return last
