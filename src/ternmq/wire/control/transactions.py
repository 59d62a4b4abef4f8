"""Control: transactions that writers name, by writer and batch id; lists of all transactions."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ternmq.wire.control.checked import CheckedTransaction
from ternmq.wire.control.coding import Body, Count, Limit, Time, Token
from ternmq.wire.control.times import at, datetime

WriterName = Annotated[
    str, Meta(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")
]
"""At most 128 bytes in UTF-8."""
Unsigned = Annotated[int, Meta(ge=0)]
"""An unsigned 64-bit number."""
Ids = Annotated[list[Unsigned], Meta(max_length=1_000_000)]


class TransactionCommit(Body, frozen=True, kw_only=True):
    """Turn the prepared rows into messages, or scheduled messages, all of them at one position."""

    writer: WriterName
    batch_id: Unsigned
    ids: Ids
    """The ids from the answers to PREPARE, in the order in which their rows get offsets. Prepared
    batches that are not listed are dropped."""
    digest: Unsigned
    """Digest of the committed content, by the writer's own formula; a repeated commit must state
    the same."""


class TransactionAbort(Body, frozen=True, kw_only=True):
    """Roll back the prepared rows; the same batch id may be prepared again.

    An app with the right to manage every topic and group may also roll back transactions of other
    apps, whatever topics the rows are for. Only the owner may commit.
    """

    writer: WriterName
    batch_id: Unsigned


class TransactionDone(Body, frozen=True, kw_only=True):
    """The decision."""

    rows: Count = 0
    """Number of rows that became messages or scheduled messages."""
    repeated: bool = False
    """The same was decided before: nothing was done."""
    transaction: Count = 0
    """Number of the transaction; only of one with check-back."""


class TransactionList(Body, frozen=True, kw_only=True):
    """List undecided transactions, and writers: those of the app.

    An app with the right to manage every topic and group gets those of all apps.
    """

    writer: WriterName | None = None
    """Only this writer. None: every writer."""
    limit: Limit = 100
    """Most transactions, and most writers, on a page; a page may be shorter."""
    after: Token = ""
    """`next` of the page before."""
    checked: bool = False
    """List the undecided transactions with check-back instead, in `checked`."""
    group: str = ""
    """With `checked`: only those of this producer group."""
    query_id: str = ""
    """With `checked`: only those with this query id."""


class TransactionInfo(Body, frozen=True, kw_only=True):
    """A transaction that is undecided."""

    writer: str
    batch_id: int
    app: str
    topics: list[str]
    batches: Count
    rows: Count
    bytes: Count
    """Bytes of its prepared batches in the journal."""
    opened_us: Time
    """Time at which its first batch was prepared."""
    expires_us: Time
    """Time at which it is rolled back, unless it is decided before."""

    @property
    def opened(self) -> datetime:
        """Time at which its first batch was prepared."""
        return at(self.opened_us)

    @property
    def expires(self) -> datetime:
        """Time at which it is rolled back, unless it is decided before."""
        return at(self.expires_us)


class DecisionInfo(Body, frozen=True, kw_only=True):
    """The decision about a transaction."""

    batch_id: int
    committed: bool = False
    """Whether it was committed; False: it was rolled back."""
    rows: Count = 0
    """Number of rows that became messages or scheduled messages."""
    decided_us: Time

    @property
    def decided(self) -> datetime:
        """Time of the decision."""
        return at(self.decided_us)


class WriterInfo(Body, frozen=True, kw_only=True):
    """A writer of transactions."""

    writer: str
    app: str
    last_us: Time
    """Time of its last PREPARE or decision."""
    highest: int | None = None
    """The highest committed batch id."""
    digest: int | None = None
    """Digest of that commit."""
    rows: Count = 0
    """Number of rows of that commit."""
    decisions: Count = 0
    """Number of decisions that are remembered."""
    newest: DecisionInfo | None = None
    """The last of these decisions."""

    @property
    def last(self) -> datetime:
        """Time of its last PREPARE or decision."""
        return at(self.last_us)


class Transactions(Body, frozen=True, kw_only=True):
    """Undecided transactions, oldest first, and writers by name."""

    undecided: list[TransactionInfo]
    writers: list[WriterInfo]
    more: bool = False
    """There are more transactions or writers than listed."""
    next: str = ""
    """`after` of the request for the next page. Empty on the last page."""
    checked: list[CheckedTransaction] = msgspec.field(default_factory=list)
    """Undecided transactions with check-back, oldest first."""
