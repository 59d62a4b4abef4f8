"""The second opinion on transactions: which PREPARED and RESOLVED may follow what was there.

A transaction becomes messages at one record or not at all, with exactly what its writer listed, in
that order; never twice, never after it was rolled back in this opening, never before it was asked
for; and what is committed is never rolled back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ternmq.journal.log.scan import RawRecord
from ternmq.record.fact import transactions
from ternmq.record.fact.schedule import NO_QUEUE
from ternmq.record.fact.transactions import Prepared, Resolution, Resolved, Why
from tests.sim.history import Asked, Name, Stored, Tried
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from tests.sim.reference import Reference

_COMMITTED: Final = Resolution.COMMITTED
_REPLAYING: Final = 1 << 62
"""``Reference.first`` while what retention took is not looked at."""


class Open(NamedTuple):
    """A PREPARED of a transaction that is undecided."""

    fact: Prepared
    tried: Tried
    record: RawRecord


class Decided:
    """What the journal says of transactions."""

    def __init__(self, reference: Reference, asked: dict[Name, Asked]) -> None:
        self._reference = reference
        self._asked = asked
        self.transaction_us = 0
        self.open: dict[int, list[Open]] = {}
        """By number of the transaction."""
        self.numbers: dict[Name, int] = {}
        """Of those that are open."""
        self.committed: dict[Name, Resolved] = {}
        self.rolled_back: set[Name] = set()
        self.heard_us: dict[str, int] = {}
        """When a writer was last heard of."""

    def prepared(self, record: RawRecord) -> None:
        """Rows were prepared.

        Raises:
            Violation: they may not have been.
        """
        fact = transactions.unpack_prepared(record.body)
        where = f"PREPARED at {record.position}"
        reference = self._reference
        tried = reference.tried.get(fact.batch)
        if tried is None or tried.transaction is None:
            raise Violation(f"{where}: nobody prepared this batch")
        name = fact.writer_name, fact.batch_id
        if tried.transaction != (*name, fact.part):
            raise Violation(f"{where}: prepared for {name}, not for {tried.transaction}")
        if tried.refused:
            raise Violation(f"{where}: stored after a definite refusal")
        if name in self.committed:
            raise Violation(f"{where}: {name} is committed")
        topic = reference.topics.get(fact.topic)
        if topic is None or topic.spec.name != tried.topic:
            raise Violation(f"{where}: it landed in topic {fact.topic}")
        before = reference.stored.get(fact.batch)
        if before is not None and record.time_us - tried.time_us < reference.producer_idle_us:
            raise Violation(f"{where}: the batch stands at {before} already")
        self.heard_us[fact.writer_name] = record.time_us
        reference.stored[fact.batch] = record.position
        tried.topic_number, tried.time_us = fact.topic, record.time_us
        if fact.count != len(tried.rows):
            raise Violation(f"{where}: it counts {fact.count} rows")
        due = [bool(row.due_us) for row in tried.rows]
        if due != [fact.scheduled] * len(due) or (fact.queue == NO_QUEUE) is not fact.scheduled:
            raise Violation(f"{where}: queue {fact.queue}, scheduled {fact.scheduled}, due {due}")
        known = self.numbers.setdefault(name, fact.transaction)
        if known != fact.transaction:
            raise Violation(f"{where}: {name} is open as {known}, not {fact.transaction}")
        opened = self.open.setdefault(fact.transaction, [])
        if fact.ordinal != len(opened):
            raise Violation(f"{where}: it is number {fact.ordinal}, {len(opened)} are there")
        opened.append(Open(fact, tried, record))

    def resolved(self, record: RawRecord) -> None:
        """A transaction was decided.

        Raises:
            Violation: it may not have been, or not so.
        """
        fact = transactions.unpack_resolved(record.body)
        where = f"RESOLVED at {record.position}"
        name = fact.writer_name, fact.batch_id
        if name in self.committed:
            raise Violation(f"{where}: {name} is committed already")
        self.heard_us[fact.writer_name] = record.time_us
        opened = self.open.pop(fact.transaction, [])
        if self.numbers.pop(name, 0) != fact.transaction:
            raise Violation(f"{where}: transaction {fact.transaction} is not open")
        by_position: dict[int, Open] = {one.record.position: one for one in opened}
        listed = [part.position for part in fact.parts]
        listed += [part_due.position for part_due in fact.due]
        if sorted([*listed, *fact.dropped]) != sorted(by_position):
            raise Violation(
                f"{where}: names {sorted([*listed, *fact.dropped])} of {sorted(by_position)}"
            )
        self._check_asked(where, record, name, fact, opened)
        rows = 0
        for part in fact.parts:
            self._store(where, record, part, by_position[part.position])
            rows += part.rows
        for part_due in fact.due:
            self._schedule(where, record, part_due, by_position[part_due.position])
            rows += len(part_due.due_us)
        if rows != fact.rows:
            raise Violation(f"{where}: {rows} rows, it counts {fact.rows}")
        if fact.outcome is _COMMITTED:
            self.committed[name] = fact
            self._reference.count("transaction committed")
            if not listed:
                self._reference.count("empty transaction committed")
            if fact.dropped:
                self._reference.count("prepared batch dropped")
        else:
            self.rolled_back.add(name)
            self._reference.count(f"transaction rolled back: {fact.why.name}")

    def _check_asked(
        self, where: str, record: RawRecord, name: Name, fact: Resolved, opened: list[Open]
    ) -> None:
        asked = self._asked.get(name)
        if fact.why is Why.EXPIRED:
            age_us = record.time_us - opened[0].record.time_us
            if fact.outcome is _COMMITTED or age_us < self.transaction_us:
                raise Violation(f"{where}: {name} ended by time after {age_us} us")
        elif asked is None:
            raise Violation(f"{where}: nobody asked for {name}")
        elif fact.outcome is _COMMITTED:
            due = {part.position for part in fact.due}
            commit = tuple(part.position for part in fact.parts), tuple(due), fact.digest
            if not any(
                digest == fact.digest
                and [one for one in ids if one not in due] == [one.position for one in fact.parts]
                and [one for one in ids if one in due] == [one.position for one in fact.due]
                for ids, digest in asked.commits
            ):
                raise Violation(f"{where}: {name} was committed with {commit}, as nobody asked")
        elif not asked.aborts:
            raise Violation(f"{where}: nobody asked to roll {name} back")
        elif fact.parts or fact.due or fact.rows:
            raise Violation(f"{where}: rolled back, and {fact.rows} rows are messages")

    def _store(
        self, where: str, record: RawRecord, part: transactions.Part, prepared: Open
    ) -> None:
        fact = prepared.fact
        if fact.scheduled or (part.topic, part.queue, part.rows, part.length) != (
            fact.topic, fact.queue, fact.count, prepared.record.length,
        ):  # fmt: skip
            raise Violation(f"{where}: {part} is not what was prepared")
        if part.position < self._reference.first < _REPLAYING:
            raise Violation(f"{where}: {part.position} went with its segment before")
        topic = self._reference.topics[part.topic]
        rows = topic.queues[part.queue]
        self._reference.levels.check_stored(
            where, topic, part.queue, prepared.tried.rows, range(part.rows)
        )
        if topic.spec.levels > 1:
            self._reference.count("committed in its level")
        if part.first_offset != len(rows):
            raise Violation(f"{where}: offsets from {part.first_offset}, {len(rows)} are next")
        size = self._reference.segment_size
        if size and part.position // size != record.position // size:
            self._reference.count("prepared rows in an older segment")
        rows += [
            Stored(prepared.tried, at, record.position, record.end, record.time_us, part.position)
            for at in range(part.rows)
        ]

    def _schedule(
        self, where: str, record: RawRecord, part: transactions.DuePart, prepared: Open
    ) -> None:
        """Rows with due times are scheduled from this record on, those that are past for now."""
        fact, tried = prepared.fact, prepared.tried
        if (part.topic, part.queue, part.length) != (
            fact.topic, fact.queue, prepared.record.length,
        ):  # fmt: skip
            raise Violation(f"{where}: {part} is not what was prepared")
        due = [max(row.due_us, record.time_us) for row in tried.rows]
        if not fact.scheduled or list(part.due_us) != due:
            raise Violation(f"{where}: rows are due at {part.due_us}, not {due}")
        if part.position < self._reference.first < _REPLAYING:
            raise Violation(f"{where}: {part.position} went with its segment before")
        self._reference.scheduled.decided(record, part.first_entry, part.position, fact, tried)
        self._reference.count("scheduled by a writer")
        if min(due) == record.time_us:
            self._reference.count("past when its writer committed")
