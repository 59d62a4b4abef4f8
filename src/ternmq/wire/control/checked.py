"""Control: transactions with check-back, their checkers, producer groups."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ternmq.model.specs import MAX_QUERY_BYTES
from ternmq.model.transaction_ids import transaction_id
from ternmq.wire.control.coding import PRINTABLE, Body, Count, Limit, Number, Offset, Time
from ternmq.wire.control.times import at, datetime

Transaction = Annotated[int, Meta(ge=1)]
"""Number of a transaction: an unsigned 64-bit number."""
Unsigned = Annotated[int, Meta(ge=0)]
"""An unsigned 64-bit number."""
GroupNames = Annotated[list[str], Meta(max_length=256)]
QueryId = Annotated[str, Meta(max_length=MAX_QUERY_BYTES, pattern=PRINTABLE)]
"""What an application calls a transaction: any query id that may open one."""
Duration = Annotated[int, Meta(ge=0, le=2**63 - 1)]
MAX_ATTEMPTS = 10_000


class TransactionMove(Body, frozen=True, kw_only=True):
    """Move the cursor of a group in a queue when the transaction commits.

    After the commit, the messages of the queue below the offset count as processed. The move has no
    effect if the group has passed the offset by then, or if it was reset after this request.
    """

    transaction: Transaction
    topic: str
    group: str
    queue: Number
    offset: Offset
    """Offset of the first message that the group has not processed."""


class TransactionDecide(Body, frozen=True, kw_only=True):
    """Commit a transaction with check-back, or roll it back.

    State either `transaction`, or `producer` and `counter`. The first decision counts. The same
    decision again is answered as *repeated*; the other one is refused (TransactionDecided). An app
    with the right to manage every topic and group may decide transactions of other apps.
    """

    transaction: Transaction | None = None
    """Number of the transaction."""
    producer: Unsigned = 0
    """First half of the name that the client gave it."""
    counter: Unsigned = 0
    """Second half of this name."""
    commit: bool | None
    """True: commit. False: roll back. nil: the answer to a question is not known yet; nothing
    changes, and the next question comes in its time."""
    attempt: Number = 0
    """Number of the question that this answers; 0: none was asked."""


class TransactionShow(Body, frozen=True, kw_only=True):
    """Return the state of a transaction with check-back, decided or not.

    State either `transaction`, or `producer` and `counter`. A decision is known for as long as the
    journal holds its record.
    """

    transaction: Transaction | None = None
    """Number of the transaction."""
    producer: Unsigned = 0
    """First half of the name that the client gave it."""
    counter: Unsigned = 0
    """Second half of this name."""


class CheckedTransaction(Body, frozen=True, kw_only=True):
    """A transaction with check-back; fields that are not known are at their defaults."""

    transaction: Transaction
    """Number of the transaction."""
    state: str = "undecided"
    """``undecided``; ``parked``: undecided, and no more questions are asked; ``committed``;
    ``rolled-back``."""
    app: str = ""
    """App that opened it."""
    group: str = ""
    """Its producer group."""
    query_id: str = ""
    """The application's own id for the work that the transaction belongs to."""
    time_us: Time = 0
    """Time at which it was opened; of a decided one: at which it was decided."""
    attempt: Count = 0
    """Number of questions that were asked; of a decided one: of the question that was answered, 0:
    none."""
    next_us: Time = 0
    """Time of the next question; 0: none is planned."""
    topics: list[str] = msgspec.field(default_factory=list)
    """Topics that its rows are for; empty once it is decided."""
    rows: Count = 0
    """Number of prepared rows; of a committed transaction: of those that became messages or
    scheduled messages."""
    due_rows: Count = 0
    """Number of rows with due times among them."""
    bytes: Count = 0
    """Bytes of its prepared batches in the journal."""
    settled_rows: Count = 0
    """Number of rows of groups that it settles."""
    moves: Count = 0
    """Number of cursors that it moves."""
    why: str = ""
    """Who decided: ``client``, ``checker``, ``policy`` or ``operator``; empty: nobody yet."""

    @property
    def id(self) -> str:
        """Its id."""
        return transaction_id(self.transaction)

    @property
    def time(self) -> datetime:
        """Time at which it was opened; of a decided one: at which it was decided."""
        return at(self.time_us)

    @property
    def next(self) -> datetime | None:
        """Time of the next question; None: none is planned."""
        return at(self.next_us) if self.next_us else None


class CheckerOffer(Body, frozen=True, kw_only=True):
    """Offer to answer questions about the transactions of producer groups.

    The offer adds to earlier ones of this connection, and ends with the connection. The questions
    are pushes ([TRANSACTION_CHECK](#transaction_check)). A name that belongs to no app belongs to
    the app of the connection from then on. So the offer needs the same right as opening a
    transaction without rows.
    """

    groups: GroupNames
    """Names of producer groups. Each belongs to the app of the connection, or to no app yet."""


class ProducerGroupPut(Body, frozen=True, kw_only=True):
    """Make a producer group, or change it; transactions that are open follow the new settings."""

    group: str
    """Name of the group."""
    app: str = ""
    """App that a new group belongs to; empty: the app of the request. An existing group keeps
    its app."""
    first_us: Duration = 60_000_000
    """Time from opening to the first question."""
    factor: Annotated[float, Meta(ge=1, le=100)] = 1.5
    """Factor by which each pause between two questions is longer than the pause before."""
    cap_us: Duration = 600_000_000
    """Longest pause between two questions."""
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Random variation of each pause, up and down, as a part of the pause."""
    attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] = 15
    """Maximum number of questions about a transaction."""
    give_up_us: Duration = 86_400_000_000
    """Time from opening after which no more questions are asked."""
    then: Literal["park", "roll-back", "commit"] = "park"
    """What happens to a transaction after its last question: it waits for an operator, is rolled
    back, or is committed."""
    without_checker: bool = False
    """Transactions may be opened while no checker of the group is connected."""


class ProducerGroupList(Body, frozen=True, kw_only=True):
    """List producer groups by name: those that were created, and those that were used."""

    limit: Limit = 100
    """Most groups on a page."""
    after: str = ""
    """`next` of the page before."""


class ProducerGroupInfo(Body, frozen=True, kw_only=True):
    """A producer group; its settings are those that ``put_producer_group`` takes."""

    group: str
    app: str = ""
    """App that it belongs to; empty: none yet."""
    first_us: Duration
    factor: float
    cap_us: Duration
    jitter: float
    attempts: Count
    give_up_us: Duration
    then: str
    without_checker: bool = False
    checkers: Count = 0
    """Number of sessions that offer to answer its questions now."""
    undecided: Count = 0
    """Number of its undecided transactions."""


class ProducerGroups(Body, frozen=True, kw_only=True):
    """Producer groups, by name; ``next`` is empty on the last page."""

    groups: list[ProducerGroupInfo]
    next: str = ""


class ProducerGroupDelete(Body, frozen=True, kw_only=True):
    """Delete a producer group: its settings are forgotten, and any app may use its name again.

    It is refused (InvalidRequest) while the group has undecided transactions.
    """

    group: str


class TransactionCheckAgain(Body, frozen=True, kw_only=True):
    """Ask about an undecided transaction again, from the first question on, even if parked."""

    transaction: Transaction


class TransactionCheck(Body, frozen=True, kw_only=True):
    """Push: the broker asks whether a transaction is to be committed.

    Answer with [TRANSACTION_DECIDE](#transaction_decide), also if you do not know it yet.
    [TRANSACTION_READ](messages.md#transaction_read) returns the rows.
    """

    transaction: Transaction
    """Number of the transaction."""
    group: str
    """Its producer group."""
    query_id: QueryId = ""
    """The application's own id for the work that the transaction belongs to."""
    attempt: Number = 1
    """Number of this question; 1 is the first."""
    opened_us: Time = 0
    """Time at which the transaction was opened."""
    topics: list[str] = msgspec.field(default_factory=list)
    """Topics that its rows are for."""
    rows: Count = 0
    """Number of prepared rows."""
    bytes: Count = 0
    """Bytes of its prepared batches in the journal."""
