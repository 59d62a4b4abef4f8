"""What the commands of all doors share.

Doors (the native connection, and others) bring callers here; the handlers of commands find here
the broker, its settings, the callers, and what these may hold together.
"""

from __future__ import annotations

from typing import Final, Protocol

from ternmq.server.desk.accounts import Accounts, Places
from ternmq.server.desk.checkers import Checkers
from ternmq.server.desk.late import LateReads
from ternmq.server.engine.engine import Core
from ternmq.server.engine.reading_core import ReadingCore
from ternmq.server.telemetry.audit import Audit
from ternmq.server.telemetry.counters import Counters
from ternmq.settings import Settings
from ternmq.wire.port import Caller, Commands
from ternmq.wire.session import Request

PRESSED: Final = 16
"""Turns for which the loop counts as pressed after one that left work over, or in which an app
opened one of many connections."""


class DeskCommands(Commands, Protocol):
    """What can be requested, with the requests that come last in a turn."""

    def read(self, caller: Caller, request: Request) -> None:
        """Carry out a request that ``LateReads`` has queued."""
        ...


class Door(Protocol):
    """What brings callers: the native connections together, or those of another protocol."""

    def flush(self) -> None:
        """Write the answers of a turn that is over."""
        ...

    def write_out(self) -> None:
        """Write the answers that have been made since ``flush``."""
        ...

    def go_on(self) -> bool:
        """Begin what had to wait for the end of the turn; return whether something waits still."""
        ...

    # -- the end of the broker; ``Desk.draining`` is set before ------------------------------------

    @property
    def empty(self) -> bool:
        """Whether all callers are gone, and what was written for them has left."""
        ...

    def drain(self) -> None:
        """Notify the callers that the broker stops; close those that have said no HELLO."""
        ...

    def stop(self) -> None:
        """Run no more requests: clients send unanswered ones again to the next broker."""
        ...

    def finish(self) -> None:
        """Write all pending answers, then close all callers."""
        ...

    def abandon(self, why: str) -> None:
        """Close all callers at once, without a last frame; ``why`` is for the log."""
        ...


class ReadingDesk:
    """Shared by the doors and by handlers that only read. Not thread-safe: broker's loop only.

    Args:
        core: What is read, and its turns.
        settings: Limits.
        counters: Numbers.

    Attributes:
        callers: The clients that have said HELLO and are not gone.
        accounts: What each app may hold.
        waiting: Places of pulls and reads that wait for messages.
        late: Requests that come last in a turn.
        audit: Records refusals and changes.
        route_watchers: Callers that are told when the routes change.
        commands: Carries requests out; set when all handlers are known.
        doors: What brings the callers.
        draining: The broker stops: doors take no new callers.
        not_yet: Why doors take no callers yet: the broker begins to lead its group. Else empty.
    """

    core: ReadingCore

    def __init__(self, core: ReadingCore, settings: Settings, counters: Counters) -> None:
        self.core = core
        self.settings = settings
        self.counters = counters
        self.callers: set[Caller] = set()
        self.accounts = Accounts(settings.memory_bytes, settings.stall_timeout_us / 1e6)
        self.waiting = Places(settings.limits.waiters)
        self.late = LateReads(core)
        self.audit = Audit(counters, core.loop.time)
        self.route_watchers: set[Caller] = set()
        self.commands: DeskCommands
        self.doors: list[Door] = []
        self.draining = False
        self.not_yet = ""
        self._pressed = 0
        """Number of turns for which the loop counts as pressed."""
        core.on_turn = self._flush

    def press(self) -> None:
        """Count the loop as pressed for some turns if an app has little work beside another."""
        if self.accounts.mixed:
            self._pressed = PRESSED
            self.core.pressed = True

    @property
    def deserted(self) -> bool:
        """Whether all callers of all doors are gone."""
        return all(door.empty for door in self.doors)

    def _flush(self) -> None:
        """End a turn: answers out, some late requests, then what had to wait."""
        doors, late = self.doors, self.late
        for door in doors:
            door.flush()
        busy = False
        if late.queue:
            busy = late.run(self.commands.read)
            for door in doors:
                door.write_out()
            if late.queue:
                self.core.touch()
        for door in doors:
            busy = door.go_on() or busy
        self._pressed = max(0, self._pressed - 1)
        self.core.pressed = self._pressed > 0
        if busy:
            self.press()


class Desk(ReadingDesk):
    """Shared by the doors and by the handlers of all commands, at a broker that leads.

    Args:
        core: The broker.
        settings: Limits.
        counters: Numbers.

    Attributes:
        checkers: Callers that answer questions about transactions.
    """

    core: Core

    def __init__(self, core: Core, settings: Settings, counters: Counters) -> None:
        super().__init__(core, settings, counters)
        self.checkers = Checkers(core)
