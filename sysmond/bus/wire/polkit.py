# SPDX-License-Identifier: Apache-2.0
"""Who may steer: polkit decides, about the caller's name on the bus, and an absent polkit denies.

The subject is ``system-bus-name``: the name cannot pass to another process, as a process id can.
Source: org.freedesktop.PolicyKit1.Authority.CheckAuthorization (polkit's manual).
"""

import os

from sysmond.bus.wire.adapter import Connection, RemoteError
from sysmond.bus.wire.caller import Caller
from sysmond.bus.wire.errors import NotAuthorizedError, UnavailableError
from sysmond.bus.wire.names import BUS_NAME
from sysmond.bus.wire.values import Variant

AUTHORITY = (
    "org.freedesktop.PolicyKit1",
    "/org/freedesktop/PolicyKit1/Authority",
    "org.freedesktop.PolicyKit1.Authority",
)
MAY_ASK = 1
# A person who is asked for a password takes a while; a rule is a matter of milliseconds.
DECISION_S = 10.0
PERSON_S = 120.0


async def authorize(connection: Connection, caller: Caller, action: str, *, user: bool, may_ask: bool) -> None:
    """Return where the caller may do that; ``user``: as the service of a user, where its own uid alone may.

    :raises NotAuthorizedError: where it may not, or nobody is there to say so.
    """
    if user:
        if caller.uid != os.geteuid():
            raise NotAuthorizedError(f"uid {caller.uid} may not steer the service of uid {os.geteuid()}")
        return
    name = f"{BUS_NAME}.{action}"
    subject = ["system-bus-name", {"name": Variant("s", caller.name)}]
    question = [subject, name, {}, MAY_ASK if may_ask else 0, ""]
    try:
        ((is_authorized, is_challenge, _),) = await connection.ask(
            AUTHORITY,
            "CheckAuthorization",
            "(sa{sv})sa{ss}us",
            question,
            timeout_s=PERSON_S if may_ask else DECISION_S,
        )
    except RemoteError as refusal:
        raise NotAuthorizedError(f"{name}: polkit cannot be asked: {refusal}") from refusal
    except UnavailableError as silence:
        raise NotAuthorizedError(f"{name}: polkit does not answer: {silence}") from silence
    if not is_authorized:
        how = "; a person has to be asked, which the caller does not allow" if is_challenge and not may_ask else ""
        raise NotAuthorizedError(f"{name}: uid {caller.uid} is not authorized{how}")
