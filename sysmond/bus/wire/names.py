# SPDX-License-Identifier: Apache-2.0
"""The names on the bus, in one place. They are promises: a change that breaks clients has another number."""

BUS_NAME = "org.sysmond.SystemMonitor1"
OBJECT_PATH = "/org/sysmond/SystemMonitor1"
PROBE_PATH = f"{OBJECT_PATH}/probe"
SUBSCRIPTION_PATH = f"{OBJECT_PATH}/subscription"

MANAGER = f"{BUS_NAME}.Manager"
PROBE = f"{BUS_NAME}.Probe"
SUBSCRIPTION = f"{BUS_NAME}.Subscription"
ERROR = f"{BUS_NAME}.Error"

POLKIT_ACTIONS = ("configure", "flush", "hold", "mark", "pin")
"""Actions of polkit, each as ``org.sysmond.SystemMonitor1.ACTION``."""


def probe_path(table: str) -> str:
    """The object of a probe: a table's name is an element of a path as it is."""
    return f"{PROBE_PATH}/{table}"
