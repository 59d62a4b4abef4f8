"""The second opinion on transactions with check-back: what may be in them, and who may decide.

A transaction is opened once, under a name that nobody used before; what is prepared in it is seen
by nobody until its one decision. Then all of it counts, at that record, or none. Rows that it
settles are nobody else's until then. Questions come in their time, are numbered, and end; copies
hold what the originals hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ternmq.broker.transaction.checked import CheckedTransactions
from ternmq.journal.log.scan import RawRecord
from ternmq.model.specs import ProducerGroupSpec, Unanswered
from ternmq.record.fact import checked, control, transactions
from ternmq.record.fact.checked import Checked, What
from ternmq.record.fact.facts import Cause, Outcome, Settled
from ternmq.record.fact.transactions import DuePart, Part, Prepared, Resolution, Resolved, Why
from tests.sim.history import Opening, Stored, Tried
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from tests.sim.reference import Reference, RefGroup

LENT_US: Final = 1 << 62
"""End of the lease of a transaction."""
_REPLAYING: Final = 1 << 62
"""``Reference.first`` while what retention took is not looked at."""
Name = tuple[int, int]
Key = tuple[int, int, int]
"""group, topic, queue."""


class Batch(NamedTuple):
    """Prepared rows, in their newest copy."""

    fact: Prepared
    tried: Tried
    position: int
    length: int


class Open:
    """A transaction that is undecided."""

    def __init__(self, record: RawRecord, fact: Prepared) -> None:
        self.fact = fact
        self.opened_us = self.since_us = record.time_us
        self.next_us = record.time_us + fact.check_after_us
        self.attempt = 0
        self.asked_end = 0
        """Where the record of the last question ends."""
        self.session = 0
        """Who was asked last."""
        self.parked = False
        self.count = 0
        self.batches: dict[int, Batch] = {}
        self.wishes: dict[Key, dict[int, Outcome]] = {}
        """What is to become of the rows that it settles, at the commit."""
        self.moves: dict[Key, int] = {}


class Decision(NamedTuple):
    """How a transaction was decided."""

    committed: bool
    rows: int
    position: int
    end: int


class Opened:
    """What the journal says of transactions with check-back.

    Args:
        reference: Of which this is a part.
        asked: What clients asked for, by name.
    """

    def __init__(self, reference: Reference, asked: dict[Name, Opening]) -> None:
        self._reference = reference
        self.asked = asked
        self.open: dict[int, Open] = {}
        self.numbers: dict[Name, int] = {}
        """Of every name that was ever opened, the newest transaction."""
        self.decided: dict[int, Decision] = {}
        self.groups: dict[str, control.ProducerGroupPut] = {}
        self.touched: list[int] = []

    def spec(self, group: str) -> ProducerGroupSpec:
        """Return the settings of a producer group."""
        found = self.groups.get(group)
        return ProducerGroupSpec(name=group) if found is None else found.spec

    # -- what is prepared -------------------------------------------------------------------------

    def prepared(self, record: RawRecord) -> None:
        """Something was put into a transaction, or copied.

        Raises:
            Violation: it may not have been.
        """
        fact = transactions.unpack_prepared(record.body)
        where = f"PREPARED at {record.position}"
        self.touched.append(fact.transaction)
        if fact.replaced is not None:
            self._copied(where, record, fact)
            return
        name = fact.producer, fact.batch_id
        if name not in self.asked:
            raise Violation(f"{where}: nobody opened {name}")
        opened = self.open.get(fact.transaction)
        if opened is None:
            if fact.ordinal or fact.transaction in self.decided:
                raise Violation(f"{where}: transaction {fact.transaction} is not open")
            if self.numbers.get(name) in self.open:
                raise Violation(f"{where}: {name} is open as {self.numbers[name]}")
            if fact.group not in self.groups:
                raise Violation(f"{where}: producer group {fact.group} is nobody's")
            opened = self.open[fact.transaction] = Open(record, fact)
            self.numbers[name] = fact.transaction
            self._reference.count("transaction opened")
        head = (fact.producer, fact.batch_id, fact.group, fact.query_id, fact.app)
        first = opened.fact
        if head != (first.producer, first.batch_id, first.group, first.query_id, first.app):
            raise Violation(f"{where}: {head} in transaction {fact.transaction}")
        if fact.ordinal != opened.count:
            raise Violation(f"{where}: it is number {fact.ordinal}, {opened.count} are there")
        opened.count += 1
        if fact.count:
            self._rows(where, record, opened, fact)
        for settled in fact.settles:
            self._lend(where, opened, fact.transaction, settled)
        for move in fact.moves:
            key = move.group, move.topic, move.queue
            opened.moves[key] = max(move.cursor, opened.moves.get(key, 0))
            self._reference.count("cursor moved in a transaction")

    def _rows(self, where: str, record: RawRecord, opened: Open, fact: Prepared) -> None:
        reference = self._reference
        tried = reference.tried.get(fact.batch)
        if tried is None or tried.opened != (fact.producer, fact.batch_id):
            raise Violation(f"{where}: nobody prepared this batch in it")
        if tried.refused:
            raise Violation(f"{where}: stored after a definite refusal")
        topic = reference.topics.get(fact.topic)
        if topic is None or topic.spec.name != tried.topic:
            raise Violation(f"{where}: it landed in topic {fact.topic}")
        before = reference.stored.get(fact.batch)
        if before is not None and record.time_us - tried.time_us < reference.producer_idle_us:
            raise Violation(f"{where}: the batch stands at {before} already")
        reference.stored[fact.batch] = record.position
        tried.topic_number, tried.time_us = fact.topic, record.time_us
        if fact.count != len(tried.rows):
            raise Violation(f"{where}: it counts {fact.count} rows")
        opened.batches[fact.ordinal] = Batch(fact, tried, record.position, record.length)

    def _copied(self, where: str, record: RawRecord, fact: Prepared) -> None:
        opened = self.open.get(fact.transaction)
        known = None if opened is None else opened.batches.get(fact.ordinal)
        if opened is None or known is None:
            raise Violation(f"{where}: a copy of {fact.replaced}, which is not undecided")
        if fact.replaced != known.position:
            raise Violation(f"{where}: a copy of {fact.replaced}, the newest is {known.position}")
        alike = msgspec.structs.replace(
            fact, replaced=None, settles=known.fact.settles, moves=known.fact.moves,
            session=known.fact.session, check_after_us=known.fact.check_after_us,
        )  # fmt: skip
        if fact.settles or fact.moves or alike != known.fact:
            raise Violation(f"{where}: it is no copy of {fact.replaced}")
        opened.batches[fact.ordinal] = Batch(
            known.fact, known.tried, record.position, record.length
        )
        self._reference.scheduled.deliveries.add(record.position)  # deduplication must not know it
        self._reference.count("prepared rows copied")
        if opened.parked:
            self._reference.count("rows of a parked transaction copied")

    def _lend(self, where: str, opened: Open, number: int, fact: Settled) -> None:
        """Rows leave their lease, and belong to the transaction."""
        reference = self._reference
        group = reference.group_of((fact.group, fact.topic, fact.queue))
        if group is None:
            raise Violation(f"{where}: it settles rows of a group that is not there")
        lease_id = reference.lease_id(fact.lease_epoch, fact.lease)
        lease = group.leases.get(lease_id)
        if lease is None or not fact.lease_epoch:
            raise Violation(f"{where}: it settles rows of lease {lease_id}, which is over")
        own = group.leases.get(number)
        if own is None:
            own = group.leases[number] = reference.new_lease(0, LENT_US)
        wishes = opened.wishes.setdefault(group.key, {})
        for start, stop, attempt, deliveries in fact.runs:
            for offset in range(start, stop):
                row = group.rows.get(offset)
                if row is None or row.lease != lease_id or offset not in lease.rows:
                    raise Violation(f"{where}: {offset} is not held under lease {lease_id}")
                if (row.attempt, row.deliveries) != (attempt, deliveries):
                    raise Violation(f"{where}: {offset} has other attempts")
                if fact.outcome is not Outcome.RETRY:
                    self.check_closed(where, group, offset, number)
                lease.rows.discard(offset)
                own.rows.add(offset)
                row.lease = number
                if row.key < 0:  # of a lease from before a switch: it leaves the others of it
                    row.key = -number
                wishes[offset] = fact.outcome
        if not lease.rows:
            del group.leases[lease_id]
        reference.count("settled in a transaction")

    def check_closed(self, where: str, group: RefGroup, offset: int, number: int = 0) -> None:
        """No row is done while an earlier one of its key may come back from a transaction.

        Raises:
            Violation: it is.
        """
        subscription = self._reference.topics[group.key[1]].subscriptions[group.key[0]]
        if not subscription.spec.mode.keeps_order:
            return
        key = group.rows[offset].key
        for other, lease in group.leases.items():
            if lease.until_us == LENT_US and other != number:
                for one in lease.rows:
                    if one < offset and group.rows[one].key == key:
                        raise Violation(f"{where}: {offset} before {one} of transaction {other}")

    # -- questions --------------------------------------------------------------------------------

    def checked(self, record: RawRecord) -> None:
        """Somebody was asked, or the questions ended or began anew.

        Raises:
            Violation: they may not have.
        """
        fact = checked.unpack_checked(record.body)
        where = f"CHECKED at {record.position}"
        opened = self.open.get(fact.transaction)
        if opened is None:
            raise Violation(f"{where}: transaction {fact.transaction} is not undecided")
        self.touched.append(fact.transaction)
        spec = self.spec(opened.fact.group)
        self._reference.count(f"checked: {fact.what.name.lower()}")
        if fact.what is What.TAKEN_UP:
            if not self.asked[self._name(opened)].taken_up:
                raise Violation(f"{where}: nobody took it up")
            opened.attempt, opened.next_us = 0, fact.next_us
            opened.since_us = record.time_us
            opened.parked = False
            opened.session = 0
            return
        if opened.parked:
            raise Violation(f"{where}: it is parked")
        if fact.what is What.ASKED:
            self._asked(where, record, opened, fact, spec)
            return
        if (fact.attempt, fact.next_us) != (opened.attempt, 0) or spec.then is not Unanswered.PARK:
            raise Violation(f"{where}: parked with {fact}")
        self._check_over(where, record, opened, spec)
        opened.parked, opened.next_us, opened.session = True, 0, 0

    def _asked(
        self, where: str, record: RawRecord, opened: Open, fact: Checked, spec: ProducerGroupSpec
    ) -> None:
        if fact.attempt != opened.attempt + 1:
            raise Violation(f"{where}: question {fact.attempt} after {opened.attempt}")
        if record.time_us < opened.next_us:
            raise Violation(f"{where}: {opened.next_us - record.time_us} us early")
        if fact.attempt > spec.attempts or record.time_us >= self._end_us(opened, spec):
            raise Violation(f"{where}: the questions were over")
        if fact.session not in self._reference.sessions:
            raise Violation(f"{where}: session {fact.session} is asked, which is not there")
        least_us = min(spec.first_us, spec.cap_us) * (1 - spec.jitter)
        pause_us = fact.next_us - record.time_us
        if not least_us - 1 <= pause_us <= spec.cap_us * (1 + spec.jitter):
            raise Violation(f"{where}: the next question is {pause_us} us later")
        if opened.session and opened.session != fact.session:
            self._reference.count("another session is asked")
        opened.attempt, opened.next_us = fact.attempt, fact.next_us
        opened.asked_end, opened.session = record.end, fact.session

    def _end_us(self, opened: Open, spec: ProducerGroupSpec) -> int:
        """Return when the questions end: not before clients could connect after the start."""
        reference, end_us = self._reference, opened.since_us + spec.give_up_us
        if opened.since_us >= reference.began_us:
            return end_us
        return max(end_us, reference.began_us + reference.session_grace_us + spec.first_us)

    def _check_over(
        self, where: str, record: RawRecord, opened: Open, spec: ProducerGroupSpec
    ) -> None:
        over = opened.attempt >= spec.attempts and record.time_us >= opened.next_us
        if not over and record.time_us < self._end_us(opened, spec):
            raise Violation(f"{where}: given up at question {opened.attempt} of {spec.attempts}")

    @staticmethod
    def _name(opened: Open) -> Name:
        return opened.fact.producer, opened.fact.batch_id

    # -- decisions --------------------------------------------------------------------------------

    def resolved(self, record: RawRecord) -> None:
        """A transaction was decided.

        Raises:
            Violation: it may not have been, or not so.
        """
        fact = transactions.unpack_resolved(record.body)
        where = f"RESOLVED at {record.position}"
        opened = self.open.pop(fact.transaction, None)
        if opened is None:
            raise Violation(f"{where}: transaction {fact.transaction} is not undecided")
        self.touched.append(fact.transaction)
        if (fact.producer, fact.batch_id) != self._name(opened) or fact.group != opened.fact.group:
            raise Violation(f"{where}: another name than transaction {fact.transaction} has")
        commit = fact.outcome is Resolution.COMMITTED
        self._check_asked(where, record, opened, fact, commit=commit)
        self._check_content(where, record, opened, fact, commit=commit)
        self._settle(where, record, opened, fact, commit=commit)
        self._move(where, record, opened, fact, commit=commit)
        self.decided[fact.transaction] = Decision(commit, fact.rows, record.position, record.end)
        done = "committed" if commit else "rolled back"
        self._reference.count(f"checked transaction {done}: {fact.why.name}")
        if opened.parked:
            self._reference.count("parked transaction decided")

    def _check_asked(
        self, where: str, record: RawRecord, opened: Open, fact: Resolved, *, commit: bool
    ) -> None:
        spec = self.spec(fact.group)
        if fact.why is Why.POLICY:
            wanted = Unanswered.COMMIT if commit else Unanswered.ROLL_BACK
            if spec.then is not wanted or opened.parked:
                raise Violation(f"{where}: {fact.outcome.name} by policy, which is {spec.then}")
            self._check_over(where, record, opened, spec)
            return
        asked = self.asked[self._name(opened)].decisions
        if fact.why not in {Why.WRITER, Why.CHECKER} or (commit, fact.attempt) not in asked:
            raise Violation(f"{where}: nobody asked for {fact.outcome.name} ({fact.why.name})")
        if (fact.why is Why.CHECKER) != bool(fact.attempt):
            raise Violation(f"{where}: {fact.why.name} with attempt {fact.attempt}")

    def _check_content(
        self, where: str, record: RawRecord, opened: Open, fact: Resolved, *, commit: bool
    ) -> None:
        topics = self._reference.topics
        batches = [one for _, one in sorted(opened.batches.items())]
        there = [one for one in batches if commit and one.fact.topic in topics]
        plain = [one for one in there if not one.tried.rows[0].due_us]
        due = [one for one in there if one.tried.rows[0].due_us]
        gone = [one.position for one in batches if one not in there]
        named = (
            [part.position for part in fact.parts],
            [part.position for part in fact.due],
            list(fact.dropped),
        )
        wanted = [one.position for one in plain], [one.position for one in due], gone
        if named != wanted:
            raise Violation(f"{where}: it names {named}, should name {wanted}")
        for position in (*named[0], *named[1]):
            if position < self._reference.first < _REPLAYING:
                raise Violation(f"{where}: {position} went with its segment before")
        rows = 0
        for part, one in zip(fact.parts, plain, strict=True):
            self._store(where, record, part, one)
            rows += part.rows
        for part_due, one in zip(fact.due, due, strict=True):
            self._schedule(where, record, part_due, one)
            rows += len(part_due.due_us)
        if rows != fact.rows:
            raise Violation(f"{where}: {rows} rows, it counts {fact.rows}")

    def _store(self, where: str, record: RawRecord, part: Part, one: Batch) -> None:
        fact = one.fact
        if (part.topic, part.queue, part.rows, part.length) != (
            fact.topic, fact.queue, fact.count, one.length,
        ):  # fmt: skip
            raise Violation(f"{where}: {part} is not what was prepared")
        topic = self._reference.topics[part.topic]
        rows = topic.queues[part.queue]
        self._reference.levels.check_stored(
            where, topic, part.queue, one.tried.rows, range(part.rows)
        )
        if part.first_offset != len(rows):
            raise Violation(f"{where}: offsets from {part.first_offset}, {len(rows)} are next")
        rows += [
            Stored(one.tried, at, record.position, record.end, record.time_us, part.position)
            for at in range(part.rows)
        ]

    def _schedule(self, where: str, record: RawRecord, part: DuePart, one: Batch) -> None:
        fact = one.fact
        due = tuple(max(row.due_us, record.time_us) for row in one.tried.rows)
        if (part.topic, part.queue, part.length) != (fact.topic, fact.queue, one.length):
            raise Violation(f"{where}: {part} is not what was prepared")
        if tuple(part.due_us) != due:
            raise Violation(f"{where}: rows are due at {part.due_us}, not {due}")
        self._reference.scheduled.decided(record, part.first_entry, part.position, fact, one.tried)

    def _settle(
        self, where: str, record: RawRecord, opened: Open, fact: Resolved, *, commit: bool
    ) -> None:
        """What it still holds gets the outcome that was wished, or comes back as it was."""
        reference, number = self._reference, fact.transaction
        for one in fact.settles:
            own = (one.lease_epoch, one.lease) == (0, number)
            if not own and (one.outcome, one.cause) != (Outcome.RELEASED, Cause.KEY):
                raise Violation(f"{where}: it settles rows of another lease: {one}")
            wishes = opened.wishes.get((one.group, one.topic, one.queue), {})
            for start, stop, _, _ in one.runs if own else ():
                for offset in range(start, stop):
                    self._check_wish(where, wishes.get(offset), one, commit=commit)
                    group = reference.groups.get((one.group, one.topic, one.queue))
                    if group is not None and one.outcome in (Outcome.DONE, Outcome.DEAD):
                        self.check_closed(where, group, offset, number)
            reference.settled(record, one)
        for one in fact.settles:
            reference.check_lines(record, (one.group, one.topic, one.queue))
        for group in reference.groups.values():
            if number in group.leases:
                left = sorted(group.leases[number].rows)
                raise Violation(f"{where}: {left} of {group.key} are still in the transaction")

    @staticmethod
    def _check_wish(where: str, wish: Outcome | None, one: Settled, *, commit: bool) -> None:
        if wish is None:
            raise Violation(f"{where}: it settles a row that is not in it: {one}")
        again = {Outcome.RETRY, Outcome.DEAD, Outcome.HELD}
        if not commit:
            lawful = one.outcome is Outcome.RELEASED
        elif one.outcome is Outcome.RELEASED:
            lawful = one.cause is Cause.KEY
        else:
            lawful = one.outcome in again if wish is Outcome.RETRY else one.outcome is wish
        if not lawful:
            raise Violation(f"{where}: wished was {wish.name}, it is {one.outcome.name}")

    def _move(
        self, where: str, record: RawRecord, opened: Open, fact: Resolved, *, commit: bool
    ) -> None:
        reference = self._reference
        told = {(move.group, move.topic, move.queue): move.cursor for move in fact.moves}
        wanted = {
            key: cursor for key, cursor in opened.moves.items()
            if commit and key in reference.groups and cursor > reference.groups[key].cursor
        }  # fmt: skip
        if told != wanted or len(told) != len(fact.moves):
            raise Violation(f"{where}: cursors move to {told}, should to {wanted}")
        for move in fact.moves:
            reference.moved_cursor(record, move)
            reference.count("cursor moved by a commit")

    def reset(self, key: Key) -> None:
        """A group was reset: what transactions would move it to until now does not count."""
        for opened in self.open.values():
            if opened.moves.pop(key, None) is not None:
                self._reference.count("move taken away by a reset")

    def removed(self, first: int) -> None:
        """Retention took everything below ``first``: no undecided rows may be lost with it.

        Raises:
            Violation: some are.
        """
        for number, opened in self.open.items():
            for one in opened.batches.values():
                if one.position < first < _REPLAYING:
                    raise Violation(f"rows of transaction {number} went with their segment")

    # -- comparison -------------------------------------------------------------------------------

    def compare(self, view: CheckedTransactions, numbers: list[int]) -> None:
        """Compare some transactions with the broker's view.

        Raises:
            Violation: they differ.
        """
        if len(view.by_number) != len(self.open):
            raise Violation(f"{sorted(view.by_number)} are open; should be {sorted(self.open)}")
        for number in numbers:
            ours, theirs = self.open.get(number), view.by_number.get(number)
            if ours is None or theirs is None:
                if ours is not None or theirs is not None:
                    raise Violation(f"transaction {number} is in one view only")
                continue
            told = (
                theirs.name, theirs.group, theirs.attempt, theirs.next_us, theirs.parked,
                theirs.asked, theirs.count, theirs.opened_us, theirs.since_us,
                {ordinal: one.position for ordinal, one in theirs.batches.items()},
            )  # fmt: skip
            wanted = (
                self._name(ours), ours.fact.group, ours.attempt, ours.next_us, ours.parked,
                ours.session, ours.count, ours.opened_us, ours.since_us,
                {ordinal: one.position for ordinal, one in ours.batches.items()},
            )  # fmt: skip
            if told != wanted:
                raise Violation(f"transaction {number} is {told}; should be {wanted}")
