# SPDX-License-Identifier: Apache-2.0
"""What processes run: their command lines, once each, with what looks like a secret masked.

Comes in: /proc/PID/cmdline, and what was executed as BPF recorded it or the proc connector reported. Goes out: records
of the table ``command``, restricted. ``commands`` says when one is to be read, ``execs`` what was executed, ``reading``
reads one; ``masking`` is pure; ``asking`` uses threads, since reading a command line may hang. Called by the probe
``command``.
"""
