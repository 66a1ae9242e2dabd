# SPDX-License-Identifier: Apache-2.0
"""Where the programs begin: Ctrl-C ends each of them quietly, from before its first import on.

What a program imports takes longer than much of what it does, and an interrupt in the middle of it would come out as a
traceback of somebody's library, or as an error that this makes of it. Imports nothing but what the interpreter needs.
"""

import os
import signal
import sys
from importlib import import_module

EXIT_INTERRUPTED = 128 + signal.SIGINT


def sysmond() -> int:
    """Be the recorder, or carry out one of its commands; give the exit code."""
    return _run("sysmond.__main__")


def sysmon_extract() -> int:
    """Be ``sysmon-extract``, and end with its exit code; give that where it was interrupted."""
    code = _run("sysmon_tools.extract")
    # What was unpacked of a snapshot goes when the interpreter ends.
    if code != EXIT_INTERRUPTED and "sysmond.machine.snapshot_file" not in sys.modules:
        import_module("sysmond.base.terminal").end(code)
    return code


def sysmon() -> int:
    """Be ``sysmon``; give the exit code."""
    return _run("sysmon_tools.sysmon")


def sysmonctl() -> int:
    """Be ``sysmonctl``; give the exit code."""
    return _run("sysmon_tools.ctl")


def _run(module: str) -> int:
    # Whoever starts a program in the background of a script has it ignore interrupts: so it does.
    may_be_interrupted = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if may_be_interrupted:
            signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
        program = import_module(module)
        sys.excepthook = import_module("sysmond.base.terminal").confess
        if may_be_interrupted:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code: int = program.main()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code
