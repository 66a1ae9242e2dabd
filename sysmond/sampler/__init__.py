# SPDX-License-Identifier: Apache-2.0
"""Who reads the machine, and when: a lane reads its sources once a tick and writes what they say into rings.

Comes in: a plan, and ``/proc``, ``/sys`` and devices by way of probes. Goes out: rows and events in rings; nothing
else, and nothing waits for a disk. There are two lanes, each a process: the real-time one, and the background one for
what may take long. Called by ``daemon``, which starts a lane and starts it again when it dies.

``lane`` is the loop, ``grid`` its ticks, ``sources`` the probes that it reads, a ``source`` is one of them, ``rings``
is where it writes, ``self_cost`` what it costs; ``oneshot`` is a part that reads once and ends. ``time_limit``
interrupts a reading that takes too long, ``quarantine`` is what becomes of a probe that is slow, hangs or dies. A probe
that may hang is read in a process of its own, ``blocking_reader``; ``blocking_readers`` is the lane's side of it, which
notices; the others are read in one thread, as ``turns`` has it. Of devices that come and go the background lane hears
by ``device_events``, and ``device_groups`` puts together what belongs together; ``changes`` says which of the rows that
it reads are events, too, compared at first with the ``last_rows`` of the lane before it; ``easing`` is why it reads
more seldom than planned, and ``bursts`` why it reads threads more often for a while. ``own_place`` finds the line of a
probe that is at fault.
"""
