# SPDX-License-Identifier: Apache-2.0
"""Commands of ``sysmond`` in a child that ends: what needs libraries that the bus part must not carry, or a disk."""

import asyncio
import json
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

from sysmond.bus.wire.errors import InvalidArgumentError, LimitError, NotAuthorizedError, OccupiedError, RefusedError
from sysmond.errors import NotPermittedError, UsageError
from sysmond.machine.folders import Folders
from sysmond.plan.settings import isolation

CHILDREN_MAX = 2
WAITING_MAX = 16
# One user's must not be all that wait.
WAITING_PER_USER_MAX = 4
COMMAND_S = 60.0
OUTPUT_BYTES_MAX = 1024 * 1024


class CommandRunner:
    """Runs them, a few at a time."""

    def __init__(self, folders: Folders) -> None:
        """``folders``: what the commands are about."""
        self._folders = folders
        self._places = asyncio.Semaphore(CHILDREN_MAX)
        self._waiting: Counter[int] = Counter()

    async def run(self, uid: int, command: str, *words: str) -> str:
        """Run a command for a user and give what it wrote.

        :raises RefusedError: with its line, of the kind that its exit code says.
        """
        if self._waiting[uid] >= WAITING_PER_USER_MAX:
            raise LimitError(f"uid {uid} has {WAITING_PER_USER_MAX} commands that wait; try again later")
        if self._waiting.total() >= WAITING_MAX:
            raise OccupiedError(f"{WAITING_MAX} commands wait already; try again later")
        self._waiting[uid] += 1
        try:
            async with self._places:
                code, output, complaint = await self._child(command, words)
        finally:
            self._waiting -= Counter([uid])  # Keeps nobody who has none.
        line = complaint.strip().rpartition("\n")[2].removeprefix("sysmond: ")
        match code:
            case 0:
                return output
            case UsageError.exit_code:
                raise InvalidArgumentError(line)
            case NotPermittedError.exit_code:
                raise NotAuthorizedError(line)
            case _:
                raise RefusedError(line or f"{command}: exit code {code}")

    async def json(self, uid: int, command: str, *words: str) -> Any:  # noqa: ANN401  as the command has it
        """Run a command for a user that writes JSON."""
        return json.loads(await self.run(uid, command, "--json", *words))

    async def _child(self, command: str, words: tuple[str, ...]) -> tuple[int, str, str]:
        where = [f"--state-dir={self._folders.state}", f"--runtime-dir={self._folders.runtime}"]
        child = await asyncio.create_subprocess_exec(
            sys.executable, *isolation(), "-m", "sysmond", command, *where, *words,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(COMMAND_S):
                output, complaint = await child.communicate()
        except TimeoutError as slowness:
            raise RefusedError(f"{command}: not done within {COMMAND_S:.0f} s") from slowness
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        if len(output) > OUTPUT_BYTES_MAX:
            raise LimitError(f"{command}: {len(output)} bytes to tell; expected up to {OUTPUT_BYTES_MAX}")
        return child.returncode or 0, output.decode(), complaint.decode("utf-8", "replace")
