"""Undecided transactions with check-back, and what each of them holds.

The PREPARED records of a transaction are numbered (``ordinal``); those with content are stored in
pages of 64, each an object of its own in STATE (CHECKED). Page 0 also has the names, and how often
was asked. A page is msgpack, see ``_Page``.

Rows that a transaction settles are leased to it in the views of their groups: here is only what
becomes of them at the commit.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from ternmq.model.transaction_ids import transaction_id, transaction_number
from ternmq.record.fact import facts
from ternmq.record.fact.checked import Checked, What
from ternmq.record.fact.facts import CursorMoved, Settled
from ternmq.record.fact.transactions import Prepared

PAGE_BITS: Final = 6
"""PREPARED records of a page, as a power of two."""
_NO_TIMES: Final = array("q")


class CheckedBatch(NamedTuple):
    """The rows of a PREPARED record."""

    position: int
    tag_mask: int
    topic: int
    queue: int
    """With due times: the queue that the producer asked for, 2^32-1 for none."""
    rows: int
    length: int
    """Bytes of the record."""
    due_us: array[int]
    """Due time of each row as its producer gave it; empty: they have none."""


_NO_BATCH: Final = CheckedBatch(0, 0, 0, 0, 0, 0, _NO_TIMES)


class CheckedTransaction:
    """A transaction from its opening until its decision.

    Attributes:
        number: Its number, which is its public id.
        name: Producer id and counter of its client.
        group: Its producer group.
        app: The app of its client.
        session: The session that opened it.
        opened_us: When it was opened.
        since_us: When the questions began: the opening, or when it was taken up again.
        attempt: Number of questions since then.
        next_us: When the next question is due; 0: none will be.
        parked: Whether nobody is asked any more.
        asked: The session that was asked last; 0: none was.
        count: Ordinal of the next PREPARED.
        batches, settles, moves: By ordinal of their PREPARED. A move that a reset took away leaves
            an empty entry, so that its ordinal is not used again.
        rows: Prepared rows; ``due_rows`` of them have due times.
        bytes: Bytes of the records that hold rows.
        settle_runs: Runs of rows that it settles, as ``weight`` counts them; and its moves.
        settle_bytes: Bytes that its settles take at most in a RESOLVED.
        settled_rows: Rows that it settles.
        move_count: Cursor moves in it.
    """

    __slots__ = (
        "app",
        "asked",
        "attempt",
        "batches",
        "bytes",
        "count",
        "due_rows",
        "group",
        "move_count",
        "moves",
        "name",
        "next_us",
        "number",
        "opened_us",
        "parked",
        "query_id",
        "rows",
        "session",
        "settle_bytes",
        "settle_runs",
        "settled_rows",
        "settles",
        "since_us",
    )

    def __init__(
        self,
        number: int,
        name: tuple[int, int],
        group: str,
        query_id: str,
        app: str,
        session: int,
        opened_us: int,
        next_us: int,
    ) -> None:
        self.number = number
        self.name = name
        self.group = group
        self.query_id = query_id
        self.app = app
        self.session = session
        self.opened_us = self.since_us = opened_us
        self.next_us = next_us
        self.attempt = 0
        self.parked = False
        self.asked = 0
        self.count = 1
        self.batches: dict[int, CheckedBatch] = {}
        self.settles: dict[int, Sequence[Settled]] = {}
        self.moves: dict[int, Sequence[CursorMoved]] = {}
        self.rows = 0
        self.due_rows = 0
        self.bytes = 0
        self.settle_runs = 0
        self.settle_bytes = 0
        self.settled_rows = 0
        self.move_count = 0

    @property
    def key(self) -> tuple[str, int, int]:
        """Its app and its name: names are made by clients, so each app has its own."""
        return (self.app, *self.name)

    @property
    def public_id(self) -> str:
        """Its number as people read it."""
        return transaction_id(self.number)

    @property
    def topics(self) -> set[int]:
        """Numbers of the topics of its rows."""
        return {batch.topic for batch in self.batches.values()}


FAILING_CALL: Final = 7
FAILING_ROW: Final = 3
"""Runs that a settle counts as if its rows fail, and each of these rows, since a commit takes
longer for them: a run that is done takes 1 to 2 us, a row that fails 3 to 6 us, and a settle with
a reason of its own 13 to 18 us. So no commit takes more than 20 ms."""


def weight(settles: Sequence[Settled]) -> tuple[int, int]:
    """Return the runs that settles count as, and the bytes that they take at most in a RESOLVED."""
    runs = size = 0
    for one in settles:
        rows = sum([stop - start for start, stop, _, _ in one.runs])
        failing = facts.failing(one.outcome)
        number = rows if failing else len(one.runs)
        runs += FAILING_CALL + FAILING_ROW * rows if failing else number
        # A failing settle becomes a fact for each attempt number, and each has the reason.
        attempts = len({attempt for _, _, attempt, _ in one.runs})
        size += number * facts.FAILED_RUN.size
        size += attempts * (facts.SETTLED_HEAD.size + len(one.reason) + 8)
    return runs, size


class _Head(msgspec.Struct, frozen=True, array_like=True):
    producer: int
    counter: int
    group: str
    query_id: str
    app: str
    session: int
    opened_us: int
    since_us: int
    attempt: int
    next_us: int
    parked: bool
    asked: int


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    ordinal: int
    position: int
    """0: it has no rows."""
    tag_mask: int
    topic: int
    queue: int
    rows: int
    length: int
    due_us: bytes
    settles: bytes
    """A body of SETTLED; empty: none."""
    moves: bytes
    """Bodies of CURSOR, one behind the other; empty: none, or a reset took them away."""


class _Page(msgspec.Struct, frozen=True, array_like=True):
    head: _Head
    """In each page, since any of them may be written first."""
    entries: list[_Entry]


_decode: Final = msgspec.msgpack.Decoder(_Page)
_CURSOR_BYTES: Final = facts.CURSOR.size


class CheckedTransactions:
    """All undecided transactions with check-back. Deterministic.

    Not thread-safe: call it from the broker's loop.

    Args:
        segment_size: Segment size of the journal, in bytes.

    Attributes:
        by_number: The transactions, in the order in which they were opened.
        by_name: By app, and producer id and counter of the client.
        of_group: Producer group -> number of its transactions.
        of_app: App -> number of its transactions.
        parked: Those that are parked.
        batches, bytes: PREPARED records with rows, and their bytes, of all transactions.
        due_rows: Rows with due times, of all transactions.
        settles: Sum of their ``settle_runs``.
        changed: (number, page) -> newest record that changed it.
    """

    __slots__ = (
        "_by_segment",
        "_moves",
        "_segment_size",
        "batches",
        "by_name",
        "by_number",
        "bytes",
        "changed",
        "due_rows",
        "of_app",
        "of_group",
        "parked",
        "settles",
    )

    def __init__(self, segment_size: int) -> None:
        self._segment_size = segment_size
        self.by_number: dict[int, CheckedTransaction] = {}
        self.by_name: dict[tuple[str, int, int], CheckedTransaction] = {}
        self.of_group: dict[str, int] = {}
        self.of_app: Counter[str] = Counter()
        self.parked: dict[int, None] = {}
        self.batches = 0
        self.bytes = 0
        self.due_rows = 0
        self.settles = 0
        self.changed: dict[tuple[int, int], int] = {}
        self._by_segment: dict[int, dict[tuple[int, int], None]] = {}
        """Segment -> (number, ordinal) of the rows in it."""
        self._moves: dict[tuple[int, int, int], dict[tuple[int, int], None]] = {}
        """(group, topic, queue) -> (number, ordinal) of the moves of its cursor."""

    def pins(self, segment: int) -> bool:
        """Return whether a segment holds rows of an undecided transaction."""
        return segment in self._by_segment

    @property
    def segments(self) -> int:
        """Number of segments that hold rows of undecided transactions."""
        return len(self._by_segment)

    def is_parked(self, id_: str) -> bool:
        """Return whether a transaction is parked, by its public id."""
        return transaction_number(id_) in self.parked

    def in_segment(self, segment: int) -> Iterator[tuple[CheckedTransaction, int]]:
        """Yield the transactions and ordinals of the rows in a segment; nothing may change then."""
        for number, ordinal in self._by_segment.get(segment, ()):
            yield self.by_number[number], ordinal

    # -- facts ------------------------------------------------------------------------------------

    def apply_prepared(
        self,
        position: int,
        length: int,
        time_us: int,
        fact: Prepared,
        tag_mask: int,
        due_us: array[int] = _NO_TIMES,
    ) -> None:
        """Add a PREPARED record to its transaction; a copy takes the place of the original."""
        transaction = self.by_number.get(fact.transaction)
        if transaction is None:
            transaction = self._open(
                CheckedTransaction(
                    fact.transaction,
                    (fact.producer, fact.batch_id),
                    fact.group,
                    fact.query_id,
                    fact.app,
                    fact.session,
                    time_us,
                    time_us + fact.check_after_us,
                )
            )
        ordinal = fact.ordinal
        self.changed[fact.transaction, ordinal >> PAGE_BITS] = position
        if fact.count:
            before = transaction.batches.pop(ordinal, None)
            if before is not None:
                self._uncount(transaction, ordinal, before)
            batch = CheckedBatch(
                position, tag_mask, fact.topic, fact.queue, fact.count, length, due_us
            )
            self._count(transaction, ordinal, batch)
        if fact.replaced is None:
            self._add(transaction, ordinal, fact.settles, fact.moves)

    def apply_checked(self, position: int, time_us: int, fact: Checked) -> None:
        """Note that somebody was asked, that it is parked, or that the questions begin anew."""
        transaction = self.by_number.get(fact.transaction)
        if transaction is None:
            return
        self.changed[fact.transaction, 0] = position
        transaction.attempt = fact.attempt
        transaction.next_us = fact.next_us
        transaction.parked = fact.what is What.PARKED
        transaction.asked = fact.session
        if fact.what is What.TAKEN_UP:
            transaction.since_us = time_us
        if transaction.parked:
            self.parked[fact.transaction] = None
        else:
            self.parked.pop(fact.transaction, None)

    def moves_of(self, group: int, topic: int, queue: int) -> list[tuple[int, int]]:
        """Return (number, ordinal) of the undecided moves of a cursor."""
        return list(self._moves.get((group, topic, queue), ()))

    def apply_reset(
        self, position: int, number: int, ordinal: int, group: int, topic: int, queue: int
    ) -> None:
        """Take the moves of a cursor out of a transaction: the group was reset after them."""
        transaction = self.by_number[number]
        moves = transaction.moves[ordinal]
        left = [one for one in moves if (one.group, one.topic, one.queue) != (group, topic, queue)]
        transaction.moves[ordinal] = left
        self._count_moves(transaction, len(left) - len(moves))
        self._forget_moves(number, ordinal, [(group, topic, queue)])
        self.changed[number, ordinal >> PAGE_BITS] = position

    def apply_resolved(self, number: int) -> None:
        """Remove a transaction that was decided."""
        transaction = self.by_number.pop(number, None)
        if transaction is None:
            return
        for ordinal, moves in transaction.moves.items():
            keys = {(one.group, one.topic, one.queue) for one in moves}
            self._forget_moves(number, ordinal, keys)
        if self.by_name.get(transaction.key) is transaction:
            del self.by_name[transaction.key]
        self.settles -= transaction.settle_runs
        self.parked.pop(number, None)
        self.of_app[transaction.app] -= 1
        if not self.of_app[transaction.app]:
            del self.of_app[transaction.app]
        left = self.of_group[transaction.group] - 1
        if left:
            self.of_group[transaction.group] = left
        else:
            del self.of_group[transaction.group]
        for ordinal, batch in transaction.batches.items():
            self._uncount(transaction, ordinal, batch)
        for page in range((transaction.count - 1 >> PAGE_BITS) + 1):
            self.changed.pop((number, page), None)

    def _open(self, transaction: CheckedTransaction) -> CheckedTransaction:
        self.by_number[transaction.number] = self.by_name[transaction.key] = transaction
        self.of_group[transaction.group] = self.of_group.get(transaction.group, 0) + 1
        self.of_app[transaction.app] += 1
        return transaction

    def _count(self, transaction: CheckedTransaction, ordinal: int, batch: CheckedBatch) -> None:
        transaction.batches[ordinal] = batch
        transaction.count = max(transaction.count, ordinal + 1)
        transaction.rows += batch.rows
        transaction.due_rows += len(batch.due_us)
        self.due_rows += len(batch.due_us)
        transaction.bytes += batch.length
        self.batches += 1
        self.bytes += batch.length
        segment = batch.position // self._segment_size
        self._by_segment.setdefault(segment, {})[transaction.number, ordinal] = None

    def _uncount(self, transaction: CheckedTransaction, ordinal: int, batch: CheckedBatch) -> None:
        transaction.rows -= batch.rows
        transaction.due_rows -= len(batch.due_us)
        self.due_rows -= len(batch.due_us)
        transaction.bytes -= batch.length
        self.batches -= 1
        self.bytes -= batch.length
        segment = batch.position // self._segment_size
        there = self._by_segment[segment]
        del there[transaction.number, ordinal]
        if not there:
            del self._by_segment[segment]

    def _add(
        self,
        transaction: CheckedTransaction,
        ordinal: int,
        settles: Sequence[Settled],
        moves: Sequence[CursorMoved],
    ) -> None:
        transaction.count = max(transaction.count, ordinal + 1)
        if settles:
            transaction.settles[ordinal] = settles
            runs, size = weight(settles)
            transaction.settle_runs += runs
            self.settles += runs
            transaction.settle_bytes += size
            transaction.settled_rows += sum(
                [stop - start for one in settles for start, stop, _, _ in one.runs]
            )
        if moves:
            transaction.moves[ordinal] = moves
            self._count_moves(transaction, len(moves))
            for one in moves:
                of_queue = self._moves.setdefault((one.group, one.topic, one.queue), {})
                of_queue[transaction.number, ordinal] = None

    def _count_moves(self, transaction: CheckedTransaction, more: int) -> None:
        transaction.move_count += more
        transaction.settle_runs += more
        self.settles += more

    def _forget_moves(
        self, number: int, ordinal: int, keys: Iterable[tuple[int, int, int]]
    ) -> None:
        for key in keys:
            of_queue = self._moves[key]
            del of_queue[number, ordinal]
            if not of_queue:
                del self._moves[key]

    # -- STATE ------------------------------------------------------------------------------------

    def encode(self, number: int, page: int) -> bytes:
        """Return a page for STATE; empty if it is gone."""
        one = self.by_number.get(number)
        if one is None:
            return b""
        head = _Head(
            *one.name, one.group, one.query_id, one.app, one.session, one.opened_us,
            one.since_us, one.attempt, one.next_us, one.parked, one.asked,
        )  # fmt: skip
        first = page << PAGE_BITS
        entries: list[_Entry] = []
        for ordinal in range(first, min(first + (1 << PAGE_BITS), one.count)):
            batch = one.batches.get(ordinal)
            settles = one.settles.get(ordinal)
            moves = one.moves.get(ordinal)
            if batch is None and settles is None and moves is None:
                continue
            found = batch or _NO_BATCH
            entries.append(
                _Entry(
                    ordinal,
                    found.position,
                    found.tag_mask,
                    found.topic,
                    found.queue,
                    found.rows,
                    found.length,
                    found.due_us.tobytes(),
                    facts.pack_settled(settles) if settles is not None else b"",
                    b"".join([facts.pack_cursor(move) for move in moves or ()]),
                )
            )
        return msgspec.msgpack.encode(_Page(head, entries))

    def load(self, number: int, page: int, payload: bytes, stamp: int) -> None:
        """Load a page as it was at ``stamp``."""
        if not payload:
            return
        found = _decode.decode(payload)
        head = found.head
        transaction = self.by_number.get(number)
        if transaction is None:
            transaction = self._open(
                CheckedTransaction(
                    number, (head.producer, head.counter), head.group, head.query_id, head.app,
                    head.session, head.opened_us, head.next_us,
                )
            )  # fmt: skip
        if not page:
            transaction.since_us, transaction.attempt = head.since_us, head.attempt
            transaction.next_us, transaction.parked = head.next_us, head.parked
            transaction.asked = head.asked
            if head.parked:
                self.parked[number] = None
        self.changed[number, page] = stamp
        for one in found.entries:
            if one.position:
                due_us = array("q")
                due_us.frombytes(one.due_us)
                batch = CheckedBatch(
                    one.position, one.tag_mask, one.topic, one.queue, one.rows, one.length, due_us
                )
                self._count(transaction, one.ordinal, batch)
            moves = [
                facts.unpack_cursor(one.moves[at : at + _CURSOR_BYTES])
                for at in range(0, len(one.moves), _CURSOR_BYTES)
            ]
            settles = facts.unpack_settled(one.settles) if one.settles else ()
            self._add(transaction, one.ordinal, settles, moves)
            if not (one.position or settles or moves):
                transaction.moves[one.ordinal] = ()

    def finish(self) -> None:
        """Sort the transactions, once everything is replayed."""
        self.by_number = dict(sorted(self.by_number.items()))
        self.parked = dict(sorted(self.parked.items()))
