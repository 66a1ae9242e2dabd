# SPDX-License-Identifier: Apache-2.0
"""Where in a probe's own file a reading went wrong, for who wrote it."""

from functools import partial
from types import FunctionType
from typing import Any

from sysmond.probe import Probe

# Functions around functions: more than this is a circle.
WRAPPERS_MAX = 16


def own_place(probe: Probe, problem: BaseException | None = None) -> tuple[str, int]:
    """File and line: the innermost of the probe's own that raised, else where the function begins that reads.

    Of what has none, as one made by a library, the table instead.
    """
    file, line = _begin(probe)
    call = problem.__traceback__ if problem is not None else None
    while call is not None:
        if call.tb_frame.f_code.co_filename == file:
            line = call.tb_lineno
        call = call.tb_next
    return file, line


def _begin(probe: Probe) -> tuple[str, int]:
    function: Any = probe.records or probe.read
    for _ in range(WRAPPERS_MAX):
        inner = function.func if isinstance(function, partial) else getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    for candidate in (function, getattr(function, "__func__", None), type(function).__call__):
        if isinstance(candidate, FunctionType):
            return candidate.__code__.co_filename, candidate.__code__.co_firstlineno
    return f"table {probe.table.name}", 1
