# SPDX-License-Identifier: Apache-2.0
"""Programs in Python that need what takes long to import: each has a process of its own, forked from one that has it.

DuckDB cannot live in the process of the tests: pytest keeps what would be its last, and it complains of that.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_FORKING = """
import importlib, json, os, sys, tempfile, time

for line in sys.stdin:
    program, arguments, environ, folder = json.loads(line)
    # When they are first needed.
    for name in ("sysmon_tools.extract", "sysmond.__main__", "sysmond.answers.sql.run", "duckdb"):
        importlib.import_module(name)
    said, complained = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    child = os.fork()
    if not child:
        os.dup2(said.fileno(), 1)
        os.dup2(complained.fileno(), 2)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environ)
        time.tzset()
        sys.argv[1:] = arguments
        exec(program, {"__name__": "__main__"})
        sys.exit()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    texts = []
    for file in (said, complained):
        with file:
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
    print(json.dumps([code, *texts]), flush=True)
"""
_running: "list[subprocess.Popen[str]]" = []


@contextmanager
def a_warm_process() -> Iterator[None]:
    """Have it there, for ``run``; what it imports it imports for the first program."""
    command = [sys.executable, "-c", _FORKING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        _running.append(process)
        try:
            yield
        finally:
            _running.remove(process)
            process.communicate()


def run(program: str, *arguments: str) -> str:
    """Run a program with these arguments where we are, and give what it says.

    :raises CalledProcessError: where its exit code is another than 0.
    """
    process = _running[-1]
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps([program, arguments, dict(os.environ), os.getcwd()]), file=process.stdin, flush=True)
    code, said, complained = json.loads(process.stdout.readline())
    if code:
        raise subprocess.CalledProcessError(code, program, said, complained)
    return str(said)
