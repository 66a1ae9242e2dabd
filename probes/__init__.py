# SPDX-License-Identifier: Apache-2.0
"""The probes that come with sysmond: one file each, installed as ``sysmond_probes``."""
