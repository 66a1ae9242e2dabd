# SPDX-License-Identifier: Apache-2.0
"""Tasks: processes and threads as records, from BPF or from /proc."""
