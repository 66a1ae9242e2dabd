# SPDX-License-Identifier: Apache-2.0
"""The kernel side: BPF programs loaded and pinned once, and opened by who samples."""

# The tables that BPF programs serve.
TABLES = frozenset(("process", "thread", "process_private", "exits", "command", "thread_state"))
