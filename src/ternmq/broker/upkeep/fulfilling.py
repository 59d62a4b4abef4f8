"""Makes messages of scheduled rows that are due, topic by topic, in the order of their due times.

A row becomes a message by a MESSAGES record of its own or together with its neighbours: entries
that follow one another, of one record, with one due time and one queue. Offset and queue are
decided here, as for a send. Records that are not in memory are read by jobs for a worker thread;
while one runs, its topic waits, and the others go on.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from typing import Final

from ternmq.broker.catalog.catalog import Queue, Topic
from ternmq.broker.clock.timers import FULL_RETRY_US, Timer
from ternmq.broker.delivery.parking import Parking
from ternmq.broker.intake.sends import Sending
from ternmq.broker.ledger.alarms import DUE_UNREADABLE, Alarms
from ternmq.broker.ledger.factkinds import CANCELLED, MESSAGES
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.schedule.pending import HORIZON_US
from ternmq.broker.schedule.rowpages import ScheduledRow
from ternmq.broker.schedule.topics import NEVER, TopicSchedule
from ternmq.broker.upkeep.duebatches import DueBatches
from ternmq.journal.cache.cold import Job, WouldBlock
from ternmq.model.errors import (
    CorruptJournal,
    DiskReadError,
    JournalFull,
    MessageNotFound,
    UnknownQueue,
)
from ternmq.model.types import SECOND_US
from ternmq.model.words import counted
from ternmq.record.fact.messages import Fulfilment, Messages
from ternmq.record.fact.schedule import NO_QUEUE, CancelCause, Cancelled, CancelledRow

ROWS_A_TIME: Final = 32
"""Most rows of a topic before the next topic has its turn."""
RECORD_WORK: Final = 15
"""Work units of a record, which takes some 25 us whatever its number of rows. Those of a turn
suffice for some 32 records, because sends that arrive meanwhile wait for them: beside a million
due rows, each in a record of its own, the p99 of single sends was 48.8 ms with 3 units (a turn of
nearly 128 records), and 13.8 ms with 15. It took 10 % longer until all rows were delivered."""
ROW_WORK: Final = 1
"""Work units of a row, in addition."""
WORK_SHIFT: Final = 11
"""One more unit for each 2 KiB: a turn's units suffice for 1 MiB."""
READ_TRIES: Final = 3
"""Number of failed reads after which rows are set aside."""
READ_AGAIN_US: Final = SECOND_US
PAGES_A_TIME: Final = 32
"""Pages that one call scans for the next horizon, about 1.5 ms; a small number: many pieces."""
TOPICS_A_TIME: Final = 256
"""Topics whose timers one call sets after a load, about 0.5 ms."""
_FULL_FOR_US: Final = 2 * SECOND_US
"""Rows that find no room are tried again every 100 ms: one that was not, for so long, is gone."""
_LOAD_AHEAD_US: Final = HORIZON_US // 2


class Fulfilling:
    """Makes messages of scheduled rows that are due.

    Not thread-safe: call it from the broker's loop; the jobs run in other threads.

    Attributes:
        batches: Batches of rows that are due.
        unreadable_rows: Rows set aside since the start because they could not be read.
        fulfilled_rows: Rows that became messages since the start.
        late_us: By how much the last row that became a message was late.
        pages_a_time: Pages that one call scans for the next horizon; 1 makes many pieces.
    """

    __slots__ = (
        "_alarms",
        "_full_us",
        "_jobs",
        "_ledger",
        "_now_us",
        "_parking",
        "_reading",
        "_schedule",
        "_sending",
        "_timers",
        "_waiting",
        "batches",
        "fulfilled_rows",
        "late_us",
        "pages_a_time",
        "unreadable_rows",
    )

    def __init__(self, ledger: Ledger, sending: Sending, parking: Parking) -> None:
        self._ledger = ledger
        self._schedule = ledger.views.schedule
        self._timers = ledger.timers
        self._sending = sending
        self._parking = parking
        self.batches = DueBatches(ledger.store)
        self._jobs: deque[Job] = deque()
        self._reading: dict[Job, TopicSchedule] = {}
        self._waiting: set[TopicSchedule] = set()
        """Topics that wait for a read."""
        self._now_us = 0
        self.pages_a_time = PAGES_A_TIME
        self._alarms = Alarms(ledger)
        self._full_us = -_FULL_FOR_US
        """When a row that is due found no room last."""
        self.unreadable_rows = 0
        self.fulfilled_rows = 0
        self.late_us = 0

    def start(self, now_us: int) -> None:
        """Set the timers of all topics, and that of the horizon."""
        for number in sorted(self._schedule.topics):
            self._arm(self._schedule.topics[number])
        self._timers.set(max(now_us, self._schedule.horizon_us - _LOAD_AHEAD_US), Timer.LOAD)

    def lacks_room(self, now_us: int) -> bool:
        """Return whether rows that are due do not become messages because there is no room."""
        return now_us - self._full_us < _FULL_FOR_US

    def _arm(self, topic: TopicSchedule, not_before_us: int = 0) -> None:
        due_us = self._schedule.next_due_us(topic)
        if due_us is not None:
            self._timers.arm_scheduled(topic, max(due_us, not_before_us))

    # -- timers -----------------------------------------------------------------------------------

    def load(self, now_us: int, when_us: int, owner: None, budget: int) -> int:
        """Load the schedule of the next hour into memory, in pieces, and set its timers (LOAD)."""
        del when_us, owner
        self.batches.clear()
        schedule = self._schedule
        again_us = now_us
        if schedule.loaded or not schedule.load(now_us + HORIZON_US, self.pages_a_time):
            for topic in schedule.take_loaded(TOPICS_A_TIME):
                if topic.armed_us == NEVER:
                    self._arm(topic)
            if not schedule.loaded:
                again_us = schedule.horizon_us - _LOAD_AHEAD_US
        self._timers.set(again_us, Timer.LOAD)
        return budget  # the rest of the turn belongs to others

    def fulfil(self, now_us: int, when_us: int, owner: TopicSchedule, budget: int) -> int:
        """Put some due scheduled messages of a topic into their queues (timer FULFIL)."""
        if when_us != owner.armed_us:
            return 0  # armed again for an earlier time
        owner.armed_us = NEVER
        self._now_us = now_us
        topic = self._ledger.views.catalog.topics.get(owner.topic)
        if topic is None or owner in self._waiting:
            return 0
        rows = self._schedule.due(owner, now_us, max(1, min(ROWS_A_TIME, budget // ROW_WORK)))
        work = done = 0
        again_us = now_us
        try:
            while done < len(rows) and work < budget:
                count, took = self._fulfil_some(now_us, topic, rows, done)
                done += count
                work += took
                owner.stuck = 0
        except WouldBlock as blocked:
            if owner.stuck < READ_TRIES:
                self._wait(owner, blocked.job)
                return work
            done += self._set_aside(now_us, topic, owner, rows, done)
        except JournalFull:
            again_us = now_us + FULL_RETRY_US
            if not self._ledger.journal.spare_is_coming:
                self._full_us = now_us
        except (CorruptJournal, DiskReadError, MessageNotFound):
            owner.stuck += 1
            if owner.stuck < READ_TRIES:
                again_us = now_us + READ_AGAIN_US
            else:
                done += self._set_aside(now_us, topic, owner, rows, done)
        finally:
            self._schedule.give_back(owner, rows[done:])
        self._arm(owner, again_us)
        return work

    def _fulfil_some(
        self, now_us: int, topic: Topic, rows: list[ScheduledRow], at: int
    ) -> tuple[int, int]:
        """Make messages of the rows from ``rows[at]`` on that fit into one record.

        Returns:
            Number of rows, and work units.

        Raises:
            JournalFull: There is no room; nothing was recorded.
            CorruptJournal, DiskReadError, MessageNotFound: The rows cannot be read.
            WouldBlock: bytes must be read first; nothing was recorded.
        """
        first = rows[at]
        batch, count, home, work = self.batches.get(now_us, topic, rows, at)
        if self._ledger.room.lacks(len(batch), frees=True):
            raise JournalFull("no room for messages that are due")
        queue = self._queue(topic, batch, first.queue) if home is None else topic.queues[home]
        offset = queue.next
        fact = Messages(
            topic.number, queue.number, offset, count, (), batch,
            Fulfilment(first.position, first.entry, first.due_us),
        )  # fmt: skip
        self._ledger.record(now_us, MESSAGES, fact)
        if queue.first == offset:
            self._ledger.views.catalog.firsts.look_up(queue)
        if queue.watched:
            self._parking.grew(queue)
        self.fulfilled_rows += count
        self.late_us = now_us - first.due_us
        return count, work + RECORD_WORK + count * ROW_WORK + (len(batch) >> WORK_SHIFT)

    def _queue(self, topic: Topic, batch: bytes, wish: int) -> Queue:
        """Return the queue that the producer asked for, or the next in turn."""
        if wish != NO_QUEUE:
            try:
                return self._sending.choose_queue(topic, batch, wish)
            except UnknownQueue:
                pass  # it existed when the row was scheduled: no later setting must lose the row
        return self._sending.choose_queue(topic, batch, None)

    def _set_aside(
        self,
        now_us: int,
        topic: Topic,
        owner: TopicSchedule,
        rows: list[ScheduledRow],
        at: int,
    ) -> int:
        """Cancel ``rows[at]`` and those behind it in its record, with an alarm: it cannot be read.

        Returns:
            The number of rows; 0 if there is no room for the record, so that it is tried again.
        """
        bad = [
            CancelledRow(topic.number, row.due_us, row.entry)
            for row in takewhile(lambda row: row.position == rows[at].position, rows[at:])
        ]
        text = (
            f"{counted(len(bad), 'scheduled message')} cannot be read, and will not be delivered:"
            f" position {rows[at].position} of the journal"
        )
        try:
            # First the alarm: after a crash in between, the rows are tried and set aside again.
            self._alarms.raise_(now_us, DUE_UNREADABLE, topic.name, text)
            self._ledger.record(now_us, CANCELLED, Cancelled(CancelCause.UNREADABLE, bad))
        except JournalFull:
            return 0
        owner.stuck = 0
        self.unreadable_rows += len(bad)
        return len(bad)

    # -- jobs -------------------------------------------------------------------------------------

    def _wait(self, topic: TopicSchedule, job: Job) -> None:
        """Let a topic wait for a read."""
        self._waiting.add(topic)
        self._reading[job] = topic
        self._jobs.append(job)

    @property
    def reads(self) -> bool:
        """Whether topics wait for reads."""
        return bool(self._reading)

    @property
    def load_us(self) -> int:
        """When the horizon is moved next, at the latest."""
        return self._schedule.horizon_us - _LOAD_AHEAD_US

    def next_job(self) -> Job | None:
        """Return a read for a worker thread; None if there is none."""
        return self._jobs.popleft() if self._jobs else None

    def finished(self, job: Job, error: Exception | None) -> bool:
        """Note that a read ended or failed; return False if the job is not one of these."""
        topic = self._reading.pop(job, None)
        if topic is None:
            return False
        self._waiting.discard(topic)
        if error is None:
            self._arm(topic, self._now_us)
        else:
            topic.stuck += 1
            self._arm(topic, self._now_us + READ_AGAIN_US)
        return True
