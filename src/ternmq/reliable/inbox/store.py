"""Port to a store of messages that were handled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from ternmq.reliable.inbox.entry import Entry
from ternmq.reliable.libraries.attached import ApplicationDatabase
from ternmq.reliable.libraries.opening import Wanted


class InProgress(Exception):
    """Another handler has the message at work, and was waited for long enough."""


@dataclass(slots=True)
class Visit:
    """A message in a store, while its handler runs.

    Attributes:
        known: It was handled before: the handler must not run.
        result: Of a known message: the result that was kept. Set it, to have it kept.
        given: Arguments of the handler, by name.
        within: The transaction, as ``within=`` takes it; None: there is none, or sends find it by
            themselves.
        database: Where it is.
    """

    known: bool
    result: bytes | None = None
    given: Mapping[str, object] = field(default_factory=dict)
    within: object = None
    database: ApplicationDatabase | None = None


@dataclass(slots=True, frozen=True)
class Asked:
    """How a handler wants its messages remembered.

    Attributes:
        wanted: Its parameters that receive the transaction.
        keep_ms: How long a message is remembered.
        result: Whether its result is kept.
    """

    wanted: Sequence[Wanted]
    keep_ms: int
    result: bool


class Store(Protocol):
    """Remembers messages. Callable from any thread.

    A message counts as handled once the block of its visit was left without an error. An error in
    the block leaves no trace of the message.
    """

    def check(self, name: str, wanted: Sequence[Wanted], *, awaited: bool) -> None:
        """Check that a handler can have what it wants; raises InvalidHandler."""

    def visit(self, entry: Entry, asked: Asked) -> AbstractContextManager[Visit]:
        """Return the visit of a message whose handler blocks.

        Raises:
            InProgress: Another handler has it.
            DatabaseNotPrepared, ShardsChanged, Exception: The store's own.
        """

    def visit_awaited(self, entry: Entry, asked: Asked) -> AbstractAsyncContextManager[Visit]:
        """Return the visit of a message whose handler is awaited; see ``visit``."""

    def asks_again(self, error: Exception) -> bool:
        """Return whether a visit that failed so may be begun again at once."""

    def forget(self, entries: Iterable[Entry]) -> int:
        """Forget messages; return how many were known. Blocks."""

    def begin(self) -> None:
        """Begin what runs beside handlers; may be repeated. Called before each message."""

    def prepare(self, *, moved: bool) -> list[str]:
        """Make what the store needs; see ``Inbox.prepare``."""

    def clean(self, now_ms: int | None) -> int:
        """Remove messages whose time is over; see ``Inbox.clean``."""

    def close(self) -> None:
        """End what runs beside handlers, and close connections."""

    async def close_awaited(self) -> None:
        """Close connections of the present loop."""

    def leave(self) -> None:
        """Forget connections and threads in a forked child."""
