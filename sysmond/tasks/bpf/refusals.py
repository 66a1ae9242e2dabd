# SPDX-License-Identifier: Apache-2.0
"""Why the kernel refused a BPF program, in one line for people.

Sources: capabilities(7), kernel_lockdown(7), ``kernel/bpf/verifier.c``.
"""

import errno
import re

from sysmond.tasks.bpf.libbpf import BpfRefusedError

LOCKDOWN = "/sys/kernel/security/lockdown"
STATUS = "/proc/self/status"
LINE_CHARACTERS_MAX = 160

_CAPABILITIES = {"CAP_BPF": 39, "CAP_PERFMON": 38}
_CAP_SYS_ADMIN = 21  # Has both in it.
_CONFIDENTIALITY = "[confidentiality]"
# What the verifier adds at the end: figures, and where it was.
_FIGURES = re.compile(r"^(processed \d+ insns|\d+: |; |from \d+ to|Func#|func#|verification time|stack depth|mark_)")


def explained(refused: BpfRefusedError) -> str:
    """Say why a program is refused."""
    if _CONFIDENTIALITY in _text(LOCKDOWN):
        return "the kernel is locked down (confidentiality): BPF may not read its memory"
    if why := no_permission():  # With only one of the two, the verifier may be what refuses.
        return why
    if refused.code in {errno.EPERM, errno.EACCES} and not refused.log:
        return f"no permission: {refused}; a container or a security module forbids it"
    if refused.log:
        return f"the verifier refuses it: {verdict(refused.log)}"
    return str(refused)


def no_permission() -> str:
    """Say which capabilities this process lacks to load any program; empty where none."""
    missing = missing_capabilities(_text(STATUS))
    return f"no permission: it takes {' and '.join(missing)}" if missing else ""


def missing_capabilities(status: str) -> list[str]:
    """Which of the two capabilities a process lacks, by the text of its /proc/PID/status."""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    has = int(match[1], 16) if match else 0
    if has >> _CAP_SYS_ADMIN & 1:
        return []
    return [name for name, bit in _CAPABILITIES.items() if not has >> bit & 1]


def verdict(log: str) -> str:
    """Give the last line of a verifier's log that is a message."""
    lines = [line.strip() for line in log.splitlines()]
    messages = [line for line in lines if line and not _FIGURES.match(line)]
    return (messages or lines or [""])[-1][:LINE_CHARACTERS_MAX]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
