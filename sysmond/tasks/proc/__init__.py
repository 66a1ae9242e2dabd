# SPDX-License-Identifier: Apache-2.0
"""By /proc: where BPF is unavailable, and for users without privileges.

Comes in: files of /proc/PID and /proc/PID/task/TID. Goes out: the same records as by BPF; values that /proc lacks are
absent. ``content`` reads a file once, ``text`` parses bytes, ``files`` keeps descriptors, ``ids`` finds new processes,
``walk`` makes a pass of them, ``threads`` reads theirs, ``moved`` says what each read and wrote by itself, ``cgroups``
where it is, ``rows`` packs records; ``states`` is what threads are doing. Called by ``tasks.choose``.
"""
