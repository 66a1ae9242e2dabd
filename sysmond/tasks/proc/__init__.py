# SPDX-License-Identifier: Apache-2.0
"""By /proc: where BPF is not to be had, and all that a user without rights can have.

Comes in: files of /proc/PID and /proc/PID/task/TID. Goes out: the same records as by BPF, with what /proc does not
say absent. ``text`` reads bytes, ``files`` keeps descriptors, ``ids`` finds who is there, ``walk`` makes a pass of
it. Called by ``tasks.choose``.
"""
