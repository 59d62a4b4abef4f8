"""Control: transactions that their writers name."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from ternmq.wire.control.coding import Body, Count, Limit, Time, Token
from ternmq.wire.control.times import at

WriterName = Annotated[
    str, Meta(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")
]
"""Of at most 128 bytes in UTF-8."""
Unsigned = Annotated[int, Meta(ge=0)]
"""Of 64 bits."""
Ids = Annotated[list[Unsigned], Meta(max_length=1_000_000)]


class TransactionCommit(Body, frozen=True, kw_only=True):
    """Make what was prepared messages, all of it at one position."""

    writer: WriterName
    batch_id: Unsigned
    ids: Ids
    """What PREPARE answered, in the order in which the rows are to have offsets. What was prepared
    and is not listed is dropped."""
    digest: Unsigned
    """Of what is committed, by the writer's own formula; whoever repeats the commit states the
    same."""


class TransactionAbort(Body, frozen=True, kw_only=True):
    """Roll back what was prepared; the name may be prepared anew.

    An app with the right to manage every topic and group may do so to a writer of another app's,
    whatever topics the rows are for. To commit is for the owner alone.
    """

    writer: WriterName
    batch_id: Unsigned


class TransactionDone(Body, frozen=True, kw_only=True):
    """What was decided."""

    rows: Count = 0
    """How many became messages."""
    repeated: bool = False
    """It had been decided so before: nothing was done."""


class TransactionList(Body, frozen=True, kw_only=True):
    """Ask for undecided transactions, and for writers.

    Those of the app; all of them with the right to manage every topic and group.
    """

    writer: WriterName | None = None
    """None: of every writer."""
    limit: Limit = 100
    """Of transactions, and of writers; a page may be shorter."""
    after: Token = ""
    """`next` of the page before."""


class TransactionInfo(Body, frozen=True, kw_only=True):
    """A transaction that is undecided."""

    writer: str
    batch_id: int
    app: str
    topics: list[str]
    batches: Count
    rows: Count
    bytes: Count
    """In the journal."""
    opened_us: Time
    """When its first batch was prepared."""
    expires_us: Time
    """When it is rolled back, unless it is decided before."""

    @property
    def opened(self) -> datetime:
        """When its first batch was prepared."""
        return at(self.opened_us)

    @property
    def expires(self) -> datetime:
        """When it is rolled back, unless it is decided before."""
        return at(self.expires_us)


class DecisionInfo(Body, frozen=True, kw_only=True):
    """What became of a transaction."""

    batch_id: int
    committed: bool = False
    """Else it was rolled back."""
    rows: Count = 0
    """How many became messages."""
    decided_us: Time

    @property
    def decided(self) -> datetime:
        """When."""
        return at(self.decided_us)


class WriterInfo(Body, frozen=True, kw_only=True):
    """A writer of transactions."""

    writer: str
    app: str
    last_us: Time
    """When it was heard of last."""
    highest: int | None = None
    """The highest batch id that is committed."""
    digest: int | None = None
    """With which digest."""
    rows: Count = 0
    """And how many rows."""
    decisions: Count = 0
    """How many decisions are remembered."""
    newest: DecisionInfo | None = None
    """The one of them that was made last."""

    @property
    def last(self) -> datetime:
        """When it was heard of last."""
        return at(self.last_us)


class Transactions(Body, frozen=True, kw_only=True):
    """Undecided transactions, oldest first, and writers by name."""

    undecided: list[TransactionInfo]
    writers: list[WriterInfo]
    more: bool = False
    """There are more of either than are told of."""
    next: str = ""
    """Where to go on: `after` of the next request. Empty on the last page."""
