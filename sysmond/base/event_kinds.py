# SPDX-License-Identifier: Apache-2.0
"""The kinds of events, and to which parts each belongs: nobody else may record one of it.

Asked where an event enters a ring. Standard library only: the real-time sampler asks, too.
"""

from sysmond.errors import UsageError

PEOPLE = "people"
DAEMON, ARCHIVER, REALTIME, BACKGROUND = "daemon", "archiver", "sampler", "background"

MARK, PIN, UNPIN = "mark", "pin", "unpin"

OWNERS = {
    MARK: (PEOPLE,),
    PIN: (PEOPLE,),
    UNPIN: (PEOPLE,),
    "start": (ARCHIVER,),
    "stop": (ARCHIVER,),
    "flush": (ARCHIVER,),
    "aside": (ARCHIVER,),
    "damaged ring": (ARCHIVER,),
    "dropped": (ARCHIVER,),
    "died": (DAEMON,),
    "removed": (DAEMON,),
    "stuck": (DAEMON, REALTIME, BACKGROUND),
    "moved": (REALTIME, BACKGROUND),
    "quarantine": (REALTIME, BACKGROUND),
    "released": (REALTIME, BACKGROUND),
    "eased": (BACKGROUND,),
    "device added": (BACKGROUND,),
    "device removed": (BACKGROUND,),
    "devices changed": (BACKGROUND,),
}
"""By kind the parts that record it; what people have recorded, a part does on their behalf."""


def check(kind: str, by: str) -> None:
    """Refuse a kind that does not belong to a part.

    :raises UsageError: naming the kind, the part, and what it may record.
    """
    if by not in OWNERS.get(kind, ()):
        own = ", ".join(name for name, owners in OWNERS.items() if by in owners)
        raise UsageError(f"event {kind!r} by {by!r}: not its kind; expected {own or 'a part that records events'}")
