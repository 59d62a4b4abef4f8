"""Which rows of a batch are not stored, because their application id is known already.

An id is known if a message of the topic within deduplication's window has it, or an earlier row of
the same batch. The row gets the receipt of that first message if it is the same message again;
otherwise it is an `IdConflict`. Two messages are the same if these are equal: body (by its hash),
key, ordering key, tag, content type, and headers except those of a trace, which differ from one
attempt to the next. Due times are not compared: a delay that is computed again gives another one.
Nor are priorities: the message is stored, and its level does not change.
If retention has removed the first message, only the body's hash is compared.

A message that was scheduled and cancelled is neither stored again, since its sender may not know of
the cancellation, nor told to be stored, since it is not: it is refused as a conflict.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from ternmq.broker.catalog.catalog import Topic
from ternmq.broker.dedup.dedup import IdEntry
from ternmq.broker.gate.replies import RowOutcome
from ternmq.broker.ledger.ledger import Ledger
from ternmq.model.errors import MessageNotFound, MessageTooLarge
from ternmq.record.batch.batch import Batch, BatchError, Row
from ternmq.record.fact import messages
from ternmq.record.fact.header import HEADER_BYTES, Kind, kind_of
from ternmq.record.fact.messages import Messages, RowRun

_OF_A_TRACE: Final = frozenset({"traceparent", "tracestate", "baggage", "b3", "uber-trace-id"})
_OF_A_TRACE_TOO: Final = ("x-b3-", "x-amzn-trace-", "uberctx-")
_RECORD_OVERHEAD: Final = HEADER_BYTES + messages.PREFIX_BYTES + 8


@dataclass(slots=True)
class Known:
    """The rows of a batch whose ids are known.

    Attributes:
        outcomes: Rows with the id of an earlier message, with its queue and offset if it is kept.
        repeats: Row with the id of an earlier row of the batch -> (that row, whether they differ).
        depends: Position up to which the journal must be durable for ``outcomes`` to hold.
    """

    outcomes: list[RowOutcome] = field(default_factory=list)
    repeats: dict[int, tuple[int, bool]] = field(default_factory=dict)
    depends: int = 0

    def runs(self, count: int) -> tuple[RowRun, ...]:
        """Return the runs of new rows in a batch of ``count`` rows."""
        left_out = {outcome.row for outcome in self.outcomes} | self.repeats.keys()
        runs: list[RowRun] = []
        for row in range(count):
            if row in left_out:
                continue
            if runs and runs[-1][1] == row:
                runs[-1] = (runs[-1][0], row + 1)
            else:
                runs.append((row, row + 1))
        return tuple(runs)

    def told(self, stored: Messages | None) -> list[RowOutcome]:
        """Return the outcomes of all rows that are not stored, in order.

        Args:
            stored: The stored rows; None if no offset is to be reported.
        """
        rows = {outcome.row: outcome for outcome in self.outcomes}
        for row, (first, differs) in self.repeats.items():
            offset = None if differs or stored is None else stored.offset_of(first)
            queue = None if offset is None or stored is None else stored.queue
            rows[row] = RowOutcome(row, offset, differs, queue)
        return [rows[row] for row in sorted(rows)]


class GivenIds:
    """Looks up application ids.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ledger", "_store", "_views")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._views = ledger.views
        self._store = ledger.store

    def known(self, now_us: int, topic: Topic, batch: bytes, below: int | None = None) -> Known:
        """Return the rows of a batch whose ids are known.

        Args:
            now_us: Broker time.
            topic: Topic of the batch.
            batch: A verified batch with ids.
            below: Only messages whose record is below this position count, and none of them was
                cancelled then; None: all.

        Raises:
            WouldBlock: bytes must be read first; nothing was changed.
        """
        dedup = self._views.dedup
        reader = Batch(batch)
        hashes = reader.body_hashes()
        known = Known()
        here: dict[int, int] = {}
        for row, (low, high) in enumerate(reader.application_ids()):
            id_hash = low | high << 64
            if not id_hash:
                continue
            entry = dedup.find_id(topic.number, id_hash, now_us)
            if entry is not None and (below is None or entry.position < below):
                self._known_before(known, reader, row, hashes[row], entry, again=below is not None)
            elif id_hash in here:
                first = here[id_hash]
                differs = hashes[first] != hashes[row] or not _same(reader, first, reader, row)
                known.repeats[row] = (first, differs)
            else:
                here[id_hash] = row
        return known

    def runs(self, known: Known, batch: bytes, count: int) -> tuple[RowRun, ...]:
        """Return the runs of new rows in a batch of ``count`` rows, some of which are known.

        Raises:
            MessageTooLarge: A record cannot have so many runs, or they do not fit a segment with
                the batch.
        """
        runs = known.runs(count)
        takes = len(batch) + messages.RUN.size * len(runs) + _RECORD_OVERHEAD
        if len(runs) > messages.MOST_RUNS or takes > self._ledger.journal.max_body:
            raise MessageTooLarge(
                f"a batch of {len(batch)} bytes with {len(runs):,} runs of new messages, between "
                "messages whose ids are known; send it in parts"
            )
        return runs

    def _known_before(
        self,
        known: Known,
        batch: Batch,
        row: int,
        body_hash: int,
        entry: IdEntry,
        *,
        again: bool,
    ) -> None:
        """Note a row with the id of an earlier message; ``again``: its outcome was told before."""
        conflict = entry.body_hash != body_hash
        cancelled = False
        offset: int | None = None
        queue: int | None = None
        end = entry.position
        try:
            record = self._store.get(entry.position)
        except MessageNotFound:
            pass
        else:
            end += len(record)
            if not conflict:
                stored = messages.of_record(record)
                conflict = not _same(Batch(stored.batch), entry.row, batch, row)
                if conflict:
                    pass
                elif kind_of(record) == Kind.MESSAGES:
                    offset, queue = stored.offset_of(entry.row), stored.queue
                elif not again and self._cancelled(stored, entry):
                    conflict = cancelled = True
                    end = self._ledger.end
        known.outcomes.append(RowOutcome(row, offset, conflict, queue, cancelled))
        known.depends = max(known.depends, end)

    def _cancelled(self, stored: Messages, entry: IdEntry) -> bool:
        """Return whether a row of a SCHEDULED record was cancelled; its record is kept.

        Raises:
            WouldBlock: bytes must be read first.
        """
        number = stored.offset_of(entry.row)
        if number is None or self._views.schedule.pages.find(number) is not None:
            return False
        batch = Batch(stored.batch)
        places = self._ledger.index.by_message_id(
            batch.producer_id, batch.first_sequence + entry.row
        )
        for place in places:  # the newest first: later records are copies, or its delivery
            if place.position <= entry.position:
                break
            if kind_of(self._store.get(place.position)) != Kind.SCHEDULED:
                return False
        return True


def _same(one: Batch, one_row: int, other: Batch, other_row: int) -> bool:
    """Return whether two rows are equal, apart from their bodies."""
    try:
        return _compared(one.without_body(one_row)) == _compared(other.without_body(other_row))
    except BatchError:
        return False  # headers that cannot be decoded: the producer sent an invalid row


def _compared(row: Row) -> Row:
    if not row.headers:
        return replace(row, headers={}, due_us=0)
    headers = {
        name: value
        for name, value in row.headers.items()
        if (low := name.lower()) not in _OF_A_TRACE and not low.startswith(_OF_A_TRACE_TOO)
    }
    return replace(row, headers=headers, due_us=0)
