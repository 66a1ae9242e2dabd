# SPDX-License-Identifier: Apache-2.0
"""Tasks: processes and threads as records, by BPF or from /proc, whichever this machine has.

Comes in: passes over all tasks, the ends of processes, the programs that they executed. Goes out: packed records of the
tables in ``tables``. Called by the probes ``process``, ``thread``, ``exits``, ``command`` and their likes.

``choose`` takes the best way this machine has; ``bpf`` and ``proc`` are the two ways; ``ends`` sees processes end, and
``command`` reads what they run. Each way gives the same records: a test compares them. ``passes`` makes one pass for
all tables (``pass_result``), ``zombies`` follows those who ended and are listed still, ``pieces`` packs rows with
texts, ``states`` is what threads are doing, ``stuck`` those that wait too long, ``cgroup_names`` is what numbers of
cgroups mean, ``hidepid`` says whether all this is public here.
``syscalls`` and ``signals`` have the names of what has a number in the kernel.
"""
