# SPDX-License-Identifier: Apache-2.0
"""Control groups: which exist, what their files say, and which one a task or a container belongs to.

Comes in: the file systems of version 1 and 2 below ``/sys/fs/cgroup``. Goes out: the folders of one hierarchy as they
come and go, their counters in rows, and the unit, user or container of a folder. Called by the probes
``cgroup`` and ``cgroup_memory`` and by ``tasks``.

``tree`` follows folders, ``files`` reads one of them, ``batch`` reads many within a tick, ``owner`` names the
owner, ``oom_kills`` says where processes were killed.
"""
