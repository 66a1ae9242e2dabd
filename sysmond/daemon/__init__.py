# SPDX-License-Identifier: Apache-2.0
"""The parts, started and watched: two lanes, the archiver, the bus part.

Comes in: the command line of ``sysmond`` without a command. Goes out: recordings; exit codes. ``arguments`` reads it;
``part`` is one part, whoever started its process; ``runner`` starts them, ``oneshot`` those that end by themselves,
``heartbeat`` checks that they live, ``reloading`` has a new plan made and carries it out, ``live_view`` shows the
newest values on a terminal. Called by ``sysmond.__main__``; where parts are units of systemd, this calls ``part`` and,
when a new plan is wanted, ``on_demand``.
"""
