"""The failures of an owed row, read back from the records that tell of them."""

from __future__ import annotations

from ternmq.broker.groupqueue import GroupQueue
from ternmq.journal.store import RecordStore
from ternmq.record import moved
from ternmq.record.facts import failing, unpack_settled
from ternmq.record.header import HEADER, HEADER_BYTES, Kind
from ternmq.record.moved import MAX_HISTORY, FailureEntry


def failure_entries(
    store: RecordStore, held: GroupQueue, offset: int, position: int, first: int
) -> list[FailureEntry]:
    """Return a row's failures, oldest first, at most ``MAX_HISTORY`` of the newest.

    Args:
        store: Reads records.
        held: Whose failures.
        offset: The row.
        position: The record that tells of the newest failure.
        first: Where the journal begins: failures told only below are gone.

    Raises:
        WouldBlock: bytes must be read first.
    """
    entries: list[FailureEntry] = []
    while first <= position and position and len(entries) < MAX_HISTORY:
        record = store.get(position)
        _, _, _, _, kind, _, _, _, time_us, _, _ = HEADER.unpack_from(record)
        body = record[HEADER_BYTES:]
        if kind == Kind.MOVED:
            for failure in moved.unpack(body).failures:
                if failure.group == held.group and failure.offset == offset:
                    entries += reversed(failure.entries)
                    break
            break
        found = _entry(held, offset, time_us, body)
        if found is None:
            break
        entry, position = found
        entries.append(entry)
    entries.reverse()
    return entries[-MAX_HISTORY:]


def _entry(
    held: GroupQueue, offset: int, time_us: int, body: bytes
) -> tuple[FailureEntry, int] | None:
    for fact in unpack_settled(body):
        if (fact.group, fact.topic, fact.queue) != (held.group, held.topic, held.queue):
            continue
        if not failing(fact.outcome):
            continue
        for (start, stop, attempt, _), previous in zip(fact.runs, fact.previous, strict=True):
            if start <= offset < stop:
                entry = FailureEntry(
                    time_us, fact.session, attempt, fact.outcome, fact.cause, fact.reason
                )
                return entry, previous
    return None
