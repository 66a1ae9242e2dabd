# SPDX-License-Identifier: Apache-2.0
"""sysmond: records what a machine does, once a second, and gives it back."""

__version__ = "0.1.0"
# What files say of who wrote them.
CREATED_BY = f"sysmond {__version__}"
