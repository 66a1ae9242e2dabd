# SPDX-License-Identifier: Apache-2.0
"""The bus part as the daemon starts it."""

import importlib
import signal
import sys
from collections.abc import Callable

from sysmond.machine import control
from sysmond.plan.plan import Plan
from sysmond.plan.settings import Settings

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# asyncio and dbus-fast would load OpenSSL, 4 MB of it, and do without where it is not there: nothing is encrypted here.
NEEDLESS = ("ssl", "_hashlib")


def run(settings: Settings, plan: Plan, say: Callable[[str], None]) -> int:
    """Be the bus part until asked to stop, in a process of its own."""
    stop = control.wake_on(STOP_SIGNALS)
    for module in NEEDLESS:
        sys.modules.setdefault(module, None)  # type: ignore[arg-type]  # that is how an import is made to fail
    code: int = importlib.import_module("sysmond.bus.loop").serve(settings, plan, say, stop)
    return code
