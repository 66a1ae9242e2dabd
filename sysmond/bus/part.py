# SPDX-License-Identifier: Apache-2.0
"""What the modules of the bus part share: settings, the plan that is in force, the service on the bus."""

from functools import cached_property
from typing import TYPE_CHECKING

from sysmond.bus.wire.exports import Exports
from sysmond.plan.plan import Plan
from sysmond.plan.settings import Settings
from sysmond.ring.newest import Follower

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sysmond.bus.commands import CommandRunner

# A rate needs two ticks; nobody on the bus asks the rings for more.
TICKS_FOR_RATE = 2


class BusPart:
    """What they share, and where they say that they want to be called at a change."""

    def __init__(self, settings: Settings, plan: Plan, service: Exports) -> None:
        """Everything is put in place. ``service``: where it is offered, on a bus or not."""
        self.settings = settings
        self.plan = plan
        self.service = service
        self.follower = Follower(settings.folders, ticks=TICKS_FOR_RATE)
        self.when_planned: list[Callable[[], None]] = []
        """Called when another plan is in force."""
        self.when_recorded: list[Callable[[int, str, str, str, bool], None]] = []
        """Called with boot time in ns, kind, subject and text of an event, and whether it is restricted."""
        self.when_forgiven: list[Callable[[], None]] = []
        """Called when the lanes were told to forget what they hold against a table."""
        self.when_left: list[Callable[[], Awaitable[None]]] = []
        """Called, and waited for, when who asks in this very process is about to end."""
        self.needed_by: list[Callable[[], bool]] = [lambda: not self.service.is_idle]
        """Each says whether something is there that ends with this part."""

    @cached_property
    def commands(self) -> "CommandRunner":
        """Who runs commands of ``sysmond`` in children."""
        from sysmond.bus.commands import CommandRunner  # noqa: PLC0415  asyncio: who only looks does without

        return CommandRunner(self.settings.folders)
