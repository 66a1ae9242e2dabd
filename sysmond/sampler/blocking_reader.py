# SPDX-License-Identifier: Apache-2.0
"""The program in which a source is read that may kill or wedge its process.

``python -m sysmond.sampler.blocking_reader PLANNED`` is given a planned probe and a root as JSON, and a socket as its
standard input. A line of JSON is an order: ``read``, ``full`` for all rows of a long table, or ``look`` for devices
anew. The first line that it answers is what the probe declares, each further one a reading. It dies with the lane
that started it. Standard library only.
"""

import ctypes
import json
import os
import signal
import socket
import sys
import time
from binascii import b2a_base64
from contextlib import suppress

from sysmond.base.model import Absence, Lane, Sensitivity
from sysmond.errors import Error
from sysmond.plan.plan import PlannedProbe
from sysmond.probe import Host
from sysmond.ring.frame import encode_layout
from sysmond.sampler.source import Pieces, Reading, Source, load

PR_SET_PDEATHSIG = 1


def main(arguments: list[str] | None = None) -> int:
    """Read whenever asked to, until nobody asks any more."""
    content, parent = sys.argv[1:] if arguments is None else arguments
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) or os.getppid() != int(parent):
        return 1
    fields = json.loads(content)
    root, usual_s = fields.pop("root"), fields.pop("usual_s")
    typed = {"lane": Lane(fields["lane"]), "sensitivity": Sensitivity(fields["sensitivity"])}
    planned = PlannedProbe(**{**fields, **typed})
    lane = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
    os.dup2(2, 1)  # What a plugin prints is no answer.
    try:
        probe = load(planned)
        source = Source(planned, probe, Host(root), usual_s)
        layout = encode_layout(source.layout).decode()
    except (Error, TypeError, ValueError) as wrong:
        _say(lane, {"error": str(wrong)})
        return 1
    declared = {"deadline_s": probe.deadline_s, "costly_s": probe.costly_s, "subsystems": list(probe.subsystems)}
    _say(lane, {"layout": layout, **declared})
    with suppress(ConnectionError):  # Nobody asks any more.
        for line in lane.makefile("rb"):
            order = json.loads(line)
            if order == "look":
                source.host.look_again()
                source.host.sleep_states.look_again()
                continue
            source.is_full_due = order == "full"
            begin_s = time.monotonic()
            source.host.new_tick()
            reading = source.read()
            _answer(lane, source, reading, time.monotonic() - begin_s)
    return 0


def _answer(lane: socket.socket, source: Source, reading: Reading | Pieces | Absence, took_s: float) -> None:
    took = {"took_s": took_s}
    if isinstance(reading, Pieces):
        pieces = [
            [_text(rows), full, lost, walked, _text(blob)] for rows, full, lost, walked, blob, _ in reading.records
        ]
        _say(lane, {"records": pieces, **took})
        for piece in reading.records:
            piece.release()
        return
    if isinstance(reading, Reading):
        try:
            _say(lane, {"names": reading.names, "values": reading.values, "lacking": reading.lacking, **took})
        except (TypeError, ValueError, RecursionError) as problem:  # What is neither number nor text.
            reading = source.failed(problem)
        else:
            return
    _say(lane, {"cause": reading.cause, "detail": reading.detail, **took})


def _text(content: bytes | bytearray | memoryview) -> str:
    return b2a_base64(content, newline=False).decode()


def _say(lane: socket.socket, what: dict[str, object]) -> None:
    lane.sendall(json.dumps(what, separators=(",", ":")).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
