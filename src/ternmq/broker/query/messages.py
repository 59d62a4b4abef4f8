"""Read-only queries: reading without a group, message lookups, the state of groups.

Answers show committed data only: rows that are not committed yet are left out, and an answer about
a group contains the position that it depends on. Every query may raise ``WouldBlock``: run the job
and call again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ternmq.broker.catalog.catalog import Catalog, Queue, Topic
from ternmq.broker.gate.replies import PullReply
from ternmq.broker.group.failedrows import HELD_US, Failure
from ternmq.broker.group.history import LastFailures, failure_entries
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.rowstate import RowPlace, row_state
from ternmq.broker.query.held import Held
from ternmq.journal.index.tail import Places
from ternmq.journal.store import lookup
from ternmq.journal.store.lookup import Cursor, Found, Page
from ternmq.journal.store.store import RecordStore
from ternmq.model.errors import InvalidRequest, MessageNotFound, OffsetExpired, UnknownQueue
from ternmq.record.fact.moved import FailureEntry
from ternmq.wire.control.groups import GroupQueueInfo, ResetQueue

MAX_LISTED: Final = 1000
LISTED_WORK: Final = 160
"""Work of a page of failed rows, about 1 ms: two units for a row, one for each of its failures, and
one for every 512 bytes of the records that describe them."""
_ROW_WORK: Final = 2
_UNIT_SHIFT: Final = 9
_EVER_US: Final = 2**63 - 1


@dataclass(slots=True, frozen=True)
class ReadReply:
    """Rows ``[start, stop)`` of a queue, in the batches at ``places``."""

    start: int
    stop: int
    places: Places


@dataclass(slots=True, frozen=True)
class FailedRow:
    """A row that waits for a retry, is held, or is dead."""

    offset: int
    attempts: int
    deliveries: int
    when_us: int
    """Due time, or when the row died."""
    held: bool
    dead: bool
    failures: tuple[FailureEntry, ...]
    """Oldest first; at most the newest 16."""


@dataclass(slots=True, frozen=True)
class FailedRows:
    """A page of failed rows, by offset; ``more``: there are others after them."""

    rows: list[FailedRow]
    more: bool


class _Counting:
    """A record store that counts the bytes read."""

    __slots__ = ("_store", "bytes_read")

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self.bytes_read = 0

    def get(self, position: int) -> bytes:
        """Return the record at a position."""
        record = self._store.get(position)
        self.bytes_read += len(record)
        return record


class Queries:
    """Answers queries about messages and groups.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_held",)

    def __init__(self, held: Held) -> None:
        self._held = held

    @property
    def catalog(self) -> Catalog:
        """Topics, groups and apps."""
        return self._held.views.catalog

    # -- messages ---------------------------------------------------------------------------------

    def read(
        self, topic_name: str, number: int, offset: int, max_messages: int, max_bytes: int
    ) -> ReadReply:
        """Return rows from an offset on, without a group; empty at the end of the queue.

        Raises:
            OffsetExpired: the offset was removed by retention; go on at the offset in the message.
            UnknownTopic, UnknownQueue, InvalidRequest, WouldBlock.
        """
        topic, queue = self.queue(topic_name, number)
        if offset < 0 or max_messages < 1:
            raise InvalidRequest("offset must be 0 or more, max_messages 1 or more")
        if offset < queue.first:
            raise OffsetExpired(f"the oldest offset that is kept is {queue.first}")
        end = self.visible(topic, queue)
        if offset >= end:
            return ReadReply(offset, offset, Places((), (), (), offset))
        stop = min(end, offset + max_messages)
        places = self._held.index.locate(topic.number, number, offset, stop, max_bytes)
        return ReadReply(offset, min(stop, places.stop), places)

    def by_offset(self, topic_name: str, number: int, offset: int) -> Found:
        """Return the message at an offset, even if only a moved copy is left for a group.

        Raises:
            MessageNotFound, UnknownTopic, UnknownQueue, WouldBlock.
        """
        held = self._held
        topic, queue = self.queue(topic_name, number)
        found = None
        if 0 <= offset < self.visible(topic, queue):
            found = lookup.by_offset(
                held.index,
                held.store,
                topic.number,
                number,
                offset,
                below=held.journal.committed,
            )
        if found is None:
            raise _no_message(topic_name, number, offset)
        return found

    def by_id(self, producer: int, sequence: int) -> Found:
        """Return the message with the id ``producer:sequence``, also if it is scheduled.

        Raises:
            MessageNotFound, WouldBlock.
        """
        held = self._held
        found = lookup.by_message_id(
            held.index,
            held.store,
            producer,
            sequence,
            below=held.journal.committed,
            pending=held.views.schedule.pages.find,
        )
        if found is None:
            raise MessageNotFound(f"no message {producer:016x}:{sequence:x} is kept here")
        return found

    def by_application_id(self, topic_name: str, application_id: str) -> Found:
        """Return the newest message of a topic with an application's own id.

        Raises:
            MessageNotFound, UnknownTopic, WouldBlock.
        """
        held = self._held
        topic = held.views.catalog.topic(topic_name)
        found = lookup.by_application_id(
            held.index,
            held.store,
            topic.number,
            application_id,
            below=held.journal.committed,
            pending=held.views.schedule.pages.find,
        )
        if found is None:
            raise MessageNotFound(f"no message {application_id} is kept in {topic_name!r}")
        return found

    def by_key(
        self,
        topic_name: str,
        key: str,
        *,
        since_us: int = 0,
        until_us: int = _EVER_US,
        limit: int = lookup.DEFAULT_LIMIT,
        after: Cursor | None = None,
    ) -> Page:
        """Return messages of a topic by business key, newest first; see ``lookup.by_key``.

        Raises:
            UnknownTopic, WouldBlock.
        """
        held = self._held
        topic = held.views.catalog.topic(topic_name)
        return lookup.by_key(
            held.index,
            held.store,
            topic.number,
            key,
            since_us=since_us,
            until_us=until_us,
            limit=limit,
            after=after,
            below=held.journal.committed,
            pending=held.views.schedule.pages.find,
        )

    def offset_at(self, topic_name: str, number: int, time_us: int) -> int:
        """Return the first kept offset that is not older than a time; the queue's end if none.

        Raises:
            UnknownTopic, UnknownQueue, WouldBlock.
        """
        topic, queue = self.queue(topic_name, number)
        found = lookup.offset_at_time(
            self._held.index, self._held.store, topic.number, number, time_us
        )
        end = self.visible(topic, queue)
        return end if found is None else min(found, end)

    # -- groups -----------------------------------------------------------------------------------

    def status(self, topic_name: str, group: str, number: int) -> GroupQueueInfo:
        """Return the state of a group on a queue.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue.
        """
        topic, queue, progress = self._progress(topic_name, group, number)
        return GroupQueueInfo(
            cursor=max(progress.cursor, progress.scan),  # what the filter passed over is not unread
            floor=progress.floor(),
            end=self.visible(topic, queue),
            leased=progress.leased_rows,
            ready=progress.ready.rows,
            waiting=progress.failures.waiting_rows,
            dead=progress.failures.dead_rows,
            intervals=progress.intervals(),
            owner=self._owner(topic, group, number),
        )

    @staticmethod
    def _owner(topic: Topic, group: str, number: int) -> str:
        owners = topic.by_group[group].owners
        member = None if owners is None else owners.members.get(owners.owner(number))
        return "" if member is None else member.label

    def ready_behind(self, topic_name: str, group: str, number: int, now_us: int) -> int:
        """Return how many ready rows wait behind a row of their key that is not due yet, or held.

        Examines every owed row of an ordered group; 0 for any other group.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue.
        """
        _, _, progress = self._progress(topic_name, group, number)
        count = 0
        for offsets in progress.order.idle_lines(progress):
            first = progress.failures.failure(offsets[0])
            if first is not None and first.when_us > now_us:
                count += sum([progress.ready.find(one) is not None for one in offsets])
        return count

    def due(self, topic_name: str, group: str, number: int, now_us: int) -> int:
        """Return how many failed rows are due and first of their key: a pull delivers them.

        Examines every row that waits.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue.
        """
        _, _, progress = self._progress(topic_name, group, number)
        return sum(
            one.when_us <= now_us and progress.order.first_before(progress, one.offset) is None
            for one in progress.failures.failed(dead=False, after=-1)
        )

    def waiting(
        self, topic_name: str, group: str, number: int, *, after: int = -1, limit: int = 100
    ) -> FailedRows:
        """Return rows above ``after`` that wait for a retry, by offset, with their failures.

        A page is a bounded piece of work: it may have fewer than ``limit`` rows, but at least one
        if there is one.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, WouldBlock.
        """
        _, _, progress = self._progress(topic_name, group, number)
        rows = progress.failures.failed(dead=False, after=after)
        return self._listed(progress, ((row, False) for row in rows), limit)

    def dead_letters(
        self, topic_name: str, group: str, number: int, *, after: int = -1, limit: int = 100
    ) -> FailedRows:
        """Return dead letters, in pages as ``waiting`` returns rows.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, WouldBlock.
        """
        _, _, progress = self._progress(topic_name, group, number)
        rows = progress.failures.failed(dead=True, after=after)
        return self._listed(progress, ((row, True) for row in rows), limit)

    def failed_rows(
        self, topic_name: str, group: str, number: int, offsets: Sequence[int]
    ) -> FailedRows:
        """Return failed rows in the order of ``offsets``; those that have not failed are left out.

        A page as ``waiting`` returns it: it may end before the last offset.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, WouldBlock.
        """
        _, _, progress = self._progress(topic_name, group, number)
        return self._listed(progress, _named(progress, offsets), len(offsets))

    def row(
        self, topic_name: str, group: str, number: int, offset: int
    ) -> tuple[RowPlace, Sequence[FailureEntry]]:
        """Return the state of a row and its failures, oldest first.

        Raises:
            MessageNotFound, UnknownTopic, UnknownGroup, UnknownQueue, WouldBlock.
        """
        held = self._held
        _, queue, progress = self._progress(topic_name, group, number)
        if not 0 <= offset < queue.next:
            raise _no_message(topic_name, number, offset)
        place = row_state(progress, offset, queue.first)
        first = held.journal.first
        return place, failure_entries(held.store, progress, offset, place.position, first)

    def dead_offsets(
        self, topic_name: str, group: str, number: int, *, after: int, limit: int
    ) -> list[int]:
        """Return the offsets of dead letters above ``after``, at most ``limit``.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue.
        """
        _, _, progress = self._progress(topic_name, group, number)
        return progress.failures.dead_offsets(after=after, limit=limit)

    def last_failures(self, topic_name: str, group: str, reply: PullReply) -> LastFailures:
        """Return an object that finds how earlier attempts at the rows of a pull ended.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue.
        """
        held = self._held
        _, _, progress = self._progress(topic_name, group, reply.queue)
        return LastFailures(held.store, progress, reply.runs, held.journal.first)

    def preview_reset(self, topic_name: str, group: str, number: int, offset: int) -> ResetQueue:
        """Return the effect of a reset to an offset; refuses what the reset would refuse.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest.
        """
        _, queue, progress = self._progress(topic_name, group, number)
        queue.check_reset(offset)
        forgotten = progress.leased_rows + progress.ready.rows + progress.failures.waiting_rows
        return ResetQueue(
            queue=number, offset=offset, unread=queue.next - offset, forgotten=forgotten
        )

    # -- parts ------------------------------------------------------------------------------------

    def _listed(
        self, progress: Progress, rows: Iterable[tuple[Failure, bool]], limit: int
    ) -> FailedRows:
        """Return a page of rows, each with whether it is dead."""
        held = self._held
        store = _Counting(held.store)
        listed: list[FailedRow] = []
        work = 0
        for row, dead in rows:
            if listed and work + (store.bytes_read >> _UNIT_SHIFT) >= LISTED_WORK:
                return FailedRows(listed, more=True)
            if len(listed) >= min(limit, MAX_LISTED):
                return FailedRows(listed, more=True)
            entries = failure_entries(store, progress, row.offset, row.position, held.journal.first)
            work += _ROW_WORK + len(entries)
            listed.append(
                FailedRow(
                    row.offset,
                    row.attempt,
                    row.deliveries,
                    row.when_us,
                    row.when_us == HELD_US,
                    dead,
                    tuple(entries),
                )
            )
        return FailedRows(listed, more=False)

    def visible(self, topic: Topic, queue: Queue) -> int:
        """Return the next offset of a queue, counting committed messages only.

        Raises:
            WouldBlock.
        """
        committed = self._held.journal.committed
        if queue.end <= committed:
            return queue.next
        return self._held.index.visible(topic.number, queue.number, committed)

    def queue(self, topic_name: str, number: int) -> tuple[Topic, Queue]:
        """Return a topic and one of its queues.

        Raises:
            UnknownTopic, UnknownQueue.
        """
        topic = self._held.views.catalog.topic(topic_name)
        if not 0 <= number < len(topic.queues):
            raise UnknownQueue(f"topic {topic_name!r} has no queue {number}")
        return topic, topic.queues[number]

    def _progress(self, topic_name: str, group: str, number: int) -> tuple[Topic, Queue, Progress]:
        subscription = self._held.views.catalog.subscription(topic_name, group)
        topic, queue = self.queue(topic_name, number)
        return topic, queue, subscription.queues[number]


def _no_message(topic: str, queue: int, offset: int) -> MessageNotFound:
    return MessageNotFound(f"no message at offset {offset} of queue {queue} of {topic!r}")


def _named(progress: Progress, offsets: Sequence[int]) -> Iterator[tuple[Failure, bool]]:
    """Yield the failed rows among some, each with whether it is dead."""
    for offset in offsets:
        dead = progress.failures.dead_letter(offset)
        row = progress.failures.failure(offset) if dead is None else dead
        if row is not None:
            yield row, dead is not None
