# SPDX-License-Identifier: Apache-2.0
"""The programs people use: they see the archive through ``sysmond.history``."""
