"""Which rows of a batch are not stored, since the application's own id of theirs is known.

An id is known if a message of the topic within deduplication's window has it, or a row before in
the same batch. The row gets the receipt of that first message if it is the same message again,
else it is an `IdConflict`. The same are: body (by its hash), key, ordering key, tag, content type,
and headers without those of a trace, which differ from one attempt to the next. Of a first message
that retention has removed only the hash of the body is left to compare.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from ternmq.broker.catalog import Topic
from ternmq.broker.dedup import IdEntry
from ternmq.broker.replies import RowOutcome
from ternmq.broker.views import Views
from ternmq.journal.store import RecordStore
from ternmq.model.errors import MessageNotFound
from ternmq.record import messages
from ternmq.record.batch import Batch, BatchError, Row
from ternmq.record.messages import Messages, RowRun

_OF_A_TRACE: Final = frozenset({"traceparent", "tracestate", "baggage", "b3", "uber-trace-id"})
_OF_A_TRACE_TOO: Final = ("x-b3-", "x-amzn-trace-", "uberctx-")


@dataclass(slots=True)
class Known:
    """What is known of the rows of a batch.

    Attributes:
        outcomes: Rows whose id an earlier message has, with its queue and offset if it is kept.
        repeats: Rows that have the id of a row before in the batch -> that row, and whether they
            differ.
        depends: The position up to which the journal must be durable for ``outcomes`` to hold.
    """

    outcomes: list[RowOutcome] = field(default_factory=list)
    repeats: dict[int, tuple[int, bool]] = field(default_factory=dict)
    depends: int = 0

    def runs(self, count: int) -> tuple[RowRun, ...]:
        """Return the runs of the rows that are new, of ``count`` rows."""
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
        """Return all rows that are left out, in order.

        Args:
            stored: Where the other rows are; None if no offset is to be named.
        """
        rows = {outcome.row: outcome for outcome in self.outcomes}
        for row, (first, differs) in self.repeats.items():
            offset = None if differs or stored is None else stored.offset_of(first)
            queue = None if offset is None or stored is None else stored.queue
            rows[row] = RowOutcome(row, offset, differs, queue)
        return [rows[row] for row in sorted(rows)]


class GivenIds:
    """Looks ids of the application up. Loop only."""

    __slots__ = ("_store", "_views")

    def __init__(self, views: Views, store: RecordStore) -> None:
        self._views = views
        self._store = store

    def known(self, now_us: int, topic: Topic, batch: bytes, below: int | None = None) -> Known:
        """Return which rows of a batch that was verified are known.

        Args:
            now_us: Broker time.
            topic: Where to.
            batch: With ids.
            below: Only messages count whose record has a position below; None: all.

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
                self._known_before(known, reader, row, hashes[row], entry)
            elif id_hash in here:
                first = here[id_hash]
                differs = hashes[first] != hashes[row] or not _same(reader, first, reader, row)
                known.repeats[row] = (first, differs)
            else:
                here[id_hash] = row
        return known

    def _known_before(
        self, known: Known, batch: Batch, row: int, body_hash: int, entry: IdEntry
    ) -> None:
        """Note a row whose id a message before has."""
        conflict = entry.body_hash != body_hash
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
                if not conflict:
                    offset, queue = stored.offset_of(entry.row), stored.queue
        known.outcomes.append(RowOutcome(row, offset, conflict, queue))
        known.depends = max(known.depends, end)


def _same(one: Batch, one_row: int, other: Batch, other_row: int) -> bool:
    """Return whether two rows are the same, their bodies aside."""
    try:
        return _compared(one.without_body(one_row)) == _compared(other.without_body(other_row))
    except BatchError:
        return False  # headers that are none: the producer sent something else than it should


def _compared(row: Row) -> Row:
    if not row.headers:
        return replace(row, headers={})
    headers = {
        name: value
        for name, value in row.headers.items()
        if (low := name.lower()) not in _OF_A_TRACE and not low.startswith(_OF_A_TRACE_TOO)
    }
    return replace(row, headers=headers)
