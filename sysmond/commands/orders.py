# SPDX-License-Identifier: Apache-2.0
"""Commands that ask the running daemon for something: mark, flush, reload."""

import argparse

from sysmond.archiver.flushing import JOB_S
from sysmond.base.event_kinds import INCIDENT, MARK, PEOPLE
from sysmond.base.terminal import put, say
from sysmond.errors import EXIT_PARTIAL, ConfigError, Error, UsageError
from sysmond.machine import control, lock
from sysmond.machine.commandline import spelled_mark
from sysmond.machine.folders import Folders
from sysmond.plan.settings import FOLLOW_S, RESOLVE_S
from sysmond.ring.frame import EVENT_BYTES_MAX
from sysmond.ring.progress import ARCHIVER

ANSWER_S = 30.0
FLUSH_S = 2 * JOB_S
# Others may have asked before.
RELOAD_S = 2 * (RESOLVE_S + FOLLOW_S)


def mark(folders: Folders, options: argparse.Namespace) -> int:
    """Put a marker into the recording, at this moment; with ``--pin`` it is an incident."""
    text = " ".join(" ".join(options.text).split())
    size = len(text.encode("utf-8", "surrogateescape"))
    if not 0 < size <= EVENT_BYTES_MAX:
        raise UsageError(f"TEXT of {size} bytes; expected 1 to {EVENT_BYTES_MAX}")
    note(folders, INCIDENT if options.pin else MARK, "", text)
    put(spelled_mark(text, is_pinned=options.pin))
    return 0


def flush(folders: Folders, options: argparse.Namespace) -> int:  # noqa: ARG001  all commands are called alike
    """Have everything written to the disk."""
    answer = _ask(folders, {"do": "flush"}, FLUSH_S)
    if answer.get("ok") is not True:
        raise Error(f"{folders.state}: not flushed: {answer.get('problem', 'no reason given')}")
    put(f"flushed to {folders.state}")
    return 0


def reload(folders: Folders, options: argparse.Namespace) -> int:  # noqa: ARG001  all commands are called alike
    """Have the configuration read again."""
    answer = _ask(folders, {"do": "reload"}, RELOAD_S, "daemon")
    if "error" in answer:
        raise ConfigError(str(answer["error"]))
    behind = answer.get("behind")
    for part, reason in behind.items() if isinstance(behind, dict) else ():
        say(f"{part} has not applied it yet: {reason}")
    remarks = answer.get("remarks")
    for remark in remarks if isinstance(remarks, list) else ():
        say(str(remark))
    put("reloaded")
    return EXIT_PARTIAL if behind else 0


def note(folders: Folders, kind: str, subject: str, text: str) -> None:
    """Have an event recorded.

    :raises Error: where no daemon runs, or it has no room for it.
    """
    answer = _ask(folders, {"do": "event", "by": PEOPLE, "kind": kind, "subject": subject, "text": text}, ANSWER_S)
    if answer.get("ok") is not True:
        raise Error(f"{folders.runtime}: not recorded: {answer.get('error', 'no room for it')}")


def _ask(folders: Folders, order: control.Order, timeout_s: float, part: str = ARCHIVER) -> control.Order:
    try:
        return control.ask(f"{folders.runtime}/{part}", order, timeout_s)
    except control.NobodyListensError as nobody:
        raise Error(f"{nobody}{lock.elsewhere(folders)}") from nobody
