# SPDX-License-Identifier: Apache-2.0
"""Tasks: processes and threads as records, by BPF or from /proc, whichever this machine has.

Comes in: passes over all tasks, the ends of processes, the programs that they executed. Goes out: packed records of
the tables in ``tables``. Called by the probes ``process``, ``thread``, ``exits``, ``command`` and their likes.

``choose`` takes the best way there is; ``bpf`` and ``proc`` are the two ways, ``ends`` how processes are seen to end,
``command`` what they run. Each way gives the same records: a test compares them.
"""
