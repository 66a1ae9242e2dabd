# SPDX-License-Identifier: Apache-2.0
"""Programs that measure what sysmond costs. Each prints a table, or with ``--json`` one object."""
