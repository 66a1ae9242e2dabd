# SPDX-License-Identifier: Apache-2.0
"""Processes that ended: records of the table ``exits``, by BPF or by netlink.

Comes in: a pinned ring buffer, or the proc connector and taskstats. Goes out: one record for each end, and how many
were lost. ``exits`` takes the best way this machine has; that without BPF is ``exits_netlink``, by ``connector`` (who
ended) and ``taskstats`` (what it used) over ``netlink``. What it was called is in ``names``, by passes over all
processes and by ``starts``, which reads each process as it starts. Called by the probe ``exits``.
``kills`` counts whom others ended by a signal, and tells of it, for the probe ``killed``.
"""
