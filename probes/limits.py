# SPDX-License-Identifier: Apache-2.0
"""What there may be only so many of in the whole system: open files, processes, terminals, from ``/proc/sys``.

Source: the kernel's ``Documentation/admin-guide/sysctl/fs.rst`` and ``kernel.rst``.
"""

import os
from collections.abc import Iterator
from errno import ENOENT

from sysmond.probe import ABSENT, Host, Lane, Metric, Probe, Row, Table, gauge, hookimpl

SYSCTL = "/proc/sys"
INTERVAL_S = 10.0


def _number(name: str, path: str, doc: str, word: int = 0) -> Metric:
    return gauge(name, "1", doc, origin=f"{SYSCTL}/{path} {word + 1}")


LIMITS = Table(
    "limits",
    doc="System-wide limits, and how much of them is in use. The number of threads is load/tasks.",
    metrics=(
        _number(
            "files", "fs/file-nr", "Open files, that is open file descriptions, which several descriptors may share."
        ),
        _number("files_max", "fs/file-nr", "Upper limit of open files; root may open more.", 2),
        _number("inodes", "fs/inode-nr", "Inodes in memory."),
        _number("inodes_unused", "fs/inode-nr", "Those that are unused and can be freed.", 1),
        _number("dentries", "fs/dentry-state", "Names of files in memory."),
        _number("dentries_unused", "fs/dentry-state", "Those that are unused and can be freed.", 1),
        _number("aio_requests", "fs/aio-nr", "Asynchronous requests reserved by io_setup(2)."),
        _number("aio_requests_max", "fs/aio-max-nr", "Their upper limit."),
        _number("terminals", "kernel/pty/nr", "Pseudo-terminals."),
        _number("terminals_max", "kernel/pty/max", "Their upper limit."),
        _number("pids_max", "kernel/pid_max", "Process and thread numbers (PIDs) are below this one."),
        _number("threads_max", "kernel/threads-max", "Upper limit of threads."),
    ),
)
_PLACES = [(path, int(word) - 1) for path, word in (metric.origin.split() for metric in LIMITS.metrics)]


def read(host: Host) -> Iterator[Row]:
    """Give the one row; what a kernel lacks is absent.

    :raises ValueError: where a file has not the numbers that it should have.
    :raises FileNotFoundError: where there is no file at all.
    """
    words = {path: host.read(path).split() for path, _ in _PLACES if os.path.exists(host.root + path)}
    if not words:
        raise FileNotFoundError(ENOENT, "neither this file nor another source exists", _PLACES[0][0])
    if short := [path for path, word in _PLACES if path in words and len(words[path]) <= word]:
        raise ValueError(f"{short[0]}: {words[short[0]]!r}; expected more numbers")
    yield "", [int(words[path][word]) if path in words else ABSENT for path, word in _PLACES]


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``limits``."""
    return [Probe(LIMITS, read, INTERVAL_S, Lane.BACKGROUND)]
