# SPDX-License-Identifier: Apache-2.0
"""How many people are logged in, as systemd-logind knows: only numbers, no names.

Source: ``/run/systemd/sessions``, whose files sd-login(3) reads. utmp is no longer kept by many distributions.
"""

import os
from collections.abc import Iterator

from sysmond.probe import Host, Lane, Probe, Row, Table, Tells, gauge, hookimpl

FOLDER = "/run/systemd/sessions"
INTERVAL_S = 60.0
SESSIONS_MAX = 4096

LOGIN = Table(
    "login",
    doc="People who are logged in. Sessions of services and login screens do not count, nor do"
    " sessions that are about to end.",
    metrics=(
        gauge("sessions", "1", "User sessions.", origin=f"{FOLDER}/* CLASS"),
        gauge("remote_sessions", "1", "Those from other machines.", origin=f"{FOLDER}/* REMOTE"),
        gauge("users", "1", "How many different people these are.", origin=f"{FOLDER}/* UID"),
    ),
)


def parse(session: str) -> tuple[str, bool] | None:
    """Give the user's number and whether it is remote; None for a session of nobody, or one that ends."""
    told = dict(line.partition("=")[::2] for line in session.splitlines())
    is_of_somebody = told.get("CLASS", "user").startswith("user") and told.get("STATE") != "closing"
    return (told["UID"], told.get("REMOTE") == "1") if is_of_somebody and told.get("UID") else None


def read(host: Host) -> Iterator[Row]:
    """Give the one row; pipes beside the sessions (NAME.ref) are none.

    :raises FileNotFoundError: where there is no logind, which makes the folder when it starts.
    """
    sessions = []
    for name in sorted(os.listdir(host.root + FOLDER))[:SESSIONS_MAX]:
        if "." not in name:
            try:
                sessions.append(parse(host.read_anew(f"{FOLDER}/{name}").decode("utf-8", "replace")))
            except FileNotFoundError:  # It ended meanwhile.
                continue
    of_people = [session for session in sessions if session]
    yield "", (len(of_people), sum(is_remote for _, is_remote in of_people), len({user for user, _ in of_people}))


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``login``, where there is a logind."""
    return [Probe(LOGIN, read, INTERVAL_S, Lane.BACKGROUND, needs=(FOLDER,), tells=(Tells("logins", "users"),))]
