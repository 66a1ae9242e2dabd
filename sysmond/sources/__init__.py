# SPDX-License-Identifier: Apache-2.0
"""Sources that are more than a text file: what speaks a protocol, or a C library, or is shared by several probes.

Probes import these modules; the parts of sysmond do not. Standard library only.
"""
