"""Bulk reading for pipelines: blocking, without an object per message, in any process.

``Bulk`` is what a Spark worker, a notebook or a script uses: it requests ranges, records and pages
of the journal from a broker, and reports its progress. Every request may be repeated, so a lost
connection is replaced and the request sent again, a limited number of times; an error raised after
that is final. Records come as stored bytes: ``ternmq.record.coalesce`` makes Arrow record batches
of them.

    with Bulk(BulkOptions(url="ternmq://localhost:7117", app="pipeline", token=token)) as broker:
        (topic,) = broker.ranges([RangesAsk(topic="orders")])
        for number, queue in enumerate(topic.queues):
            pages = broker.fetch(
                "orders", number, queue.first, queue.next, topic_number=topic.number
            )
            for page in pages:
                ...  # page.records: whole MESSAGES records; page.start, page.stop: the rows

One thread at a time. A forked child may use its parent's object: it makes its own connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec

from ternmq.client.connection.line import BulkLine, BulkOptions
from ternmq.client.content.validation import wait_of
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.model.errors import InvalidRequest, JournalExpired, UnknownTopic
from ternmq.model.specs import check_name
from ternmq.wire import bodies, control
from ternmq.wire.bodies import Records, Rows
from ternmq.wire.commands import Command
from ternmq.wire.control import (
    GroupName,
    HoldPlaced,
    Holds,
    RangesAsk,
    RangeStart,
    SessionName,
    Status,
    TopicInfo,
    TopicName,
    TopicRanges,
)

__all__ = [
    "Bulk",
    "BulkOptions",
    "Catalog",
    "JournalExpired",
    "RangeStart",
    "RangesAsk",
    "Records",
    "Rows",
]

T = TypeVar("T", bound=msgspec.Struct)

_WAIT: Final = 5.0
"""Seconds for which one request waits for rows that do not exist yet."""
_ROWS: Final = 1_000_000


@dataclass(slots=True)
class Catalog:
    """The names behind the numbers in the journal's records, including deleted ones.

    Attributes:
        as_of: Names made at or after this position are in the records themselves.
        oldest: The oldest position that the journal keeps.
        topics: By number.
        groups: By number; a number stands for a group on one topic.
        sessions: By number.
        apps: Names of the existing apps.
    """

    as_of: int = 0
    oldest: int = 0
    topics: dict[int, TopicName] = field(default_factory=dict)
    groups: dict[int, GroupName] = field(default_factory=dict)
    sessions: dict[int, SessionName] = field(default_factory=dict)
    apps: list[str] = field(default_factory=list)


class Bulk:
    """A blocking client for bulk work. Making it does no I/O. One thread at a time.

    Every method raises RefusedError if the broker refuses (Forbidden, UnknownTopic, ...), and
    ConnectionLost or CannotConnect if there was no answer after all tries.

    Args:
        options: Address, app and limits.
    """

    def __init__(self, options: BulkOptions) -> None:
        self.options = options
        self._line = BulkLine(options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Bulk], tuple[BulkOptions]]:
        """Pickle as the options; the unpickled copy makes its own connection."""
        return Bulk, (self.options,)

    def connect(self) -> None:
        """Connect now, not with the first request."""
        self._line.welcome  # noqa: B018 - connects

    def close(self) -> None:
        """End the connection."""
        self._line.close()

    @property
    def body_bytes(self) -> int:
        """Size of the largest body that the broker accepts, in bytes, as of the connection."""
        return self._line.welcome.body_bytes

    # -- topics

    def topics(self, names: Sequence[str | Topic] | None = None) -> list[TopicInfo]:
        """Return topics by name, with settings, ends of queues and groups, as far as rights allow.

        Args:
            names: Only these, if they exist; None: all.
        """
        found: list[TopicInfo] = []
        wanted = None if names is None else [name_of(name) for name in names]
        after = ""
        while True:
            asked = control.TopicList(names=wanted, after=after)
            page = self._control(Command.TOPIC_LIST, asked, control.Topics)
            found += page.topics
            if not page.more or not (page.next or page.topics):
                return found
            after = page.next or page.topics[-1].spec.name  # an older broker has no `next`
            if wanted is not None:
                wanted = [name for name in wanted if name > after]

    def ranges(self, topics: Sequence[RangesAsk]) -> list[TopicRanges]:
        """Return, in one request, the ends of many queues, offsets for a time, and where to stop.

        Topics come in the requested order; one that does not exist has the number 0 and no queues.
        """
        asked = control.QueueRanges(topics=list(topics))
        return self._control(Command.QUEUE_RANGES, asked, control.RangesFound).topics

    # -- rows

    def fetch(
        self, topic: str | Topic, queue: int, start: int, stop: int, *, topic_number: int = 0
    ) -> Iterator[Rows]:
        """Yield pages of the rows ``[start, stop)`` of a queue, in order, without a group.

        ``page.records`` are whole MESSAGES records, back to back; they contain the rows
        ``[page.start, page.stop)`` and may contain others. The next page is requested while this
        one is processed. All rows are of one topic, also if it is deleted and made again meanwhile.

        Args:
            topic: The topic.
            queue: Number of the queue.
            start: The first row.
            stop: The row after the last.
            topic_number: ``number`` of the topic, as ``ranges`` or ``topics`` returned it; 0: that
                of the topic when the first page is read.

        Raises:
            OffsetExpired: Retention removed rows first; the text names the oldest row.
            InvalidRequest: The queue ends below ``stop``, also after ``options.timeout``.
            UnknownTopic: There is no such topic any more, or another one has its name.
        """
        topic = name_of(topic)
        line = self._line
        if start >= stop:
            return
        self._ask_rows(topic, queue, start, stop)
        try:
            empty = 0.0
            while start < stop:
                page = bodies.unpack_rows(line.take())
                topic_number = topic_number or page.topic
                if page.topic != topic_number:
                    raise UnknownTopic(
                        f"topic {topic!r} of number {topic_number} was deleted; the topic of this "
                        f"name has number {page.topic}"
                    )
                if page.stop <= start:
                    empty += _WAIT
                    if empty > self.options.timeout:
                        raise InvalidRequest(
                            f"queue {queue} of {topic!r} ends at {page.next}; rows up to {stop} "
                            f"were requested"
                        )
                else:
                    start = page.stop
                if start < stop:
                    self._ask_rows(topic, queue, start, stop)
                if page.stop > page.start:
                    yield page if page.stop <= stop else page._replace(stop=stop)
        finally:
            line.drop()

    def _ask_rows(self, topic: str, queue: int, start: int, stop: int) -> None:
        read = bodies.Read(
            topic,
            queue,
            start,
            min(_ROWS, stop - start),
            self.options.read_bytes,
            int(1000 * _WAIT),
        )
        self._line.send(Command.READ, bodies.pack_read(read), _WAIT)

    # -- the journal

    def journal(
        self,
        position: int,
        *,
        max_bytes: int = 0,
        wait: float | timedelta = 0.0,
        with_bodies: bool = True,
    ) -> Records:
        """Return a page of the journal's durable records from a position on; right ``audit``.

        Args:
            position: Where a record begins: ``next`` of the page before, or ``oldest``.
            max_bytes: Most bytes of records; 0: ``options.read_bytes``. One record comes at least.
            wait: How long to wait if there is nothing yet; then the page is empty.
            with_bodies: False: large MESSAGES records come without bodies.

        Raises:
            JournalExpired: The journal begins above the position, at ``error.oldest``.
        """
        self._ask_journal(position, max_bytes, wait_of("wait", wait), with_bodies=with_bodies)
        return self._take_journal()

    @property
    def reads_journal_anywhere(self) -> bool:
        """Whether the broker lets a read of its journal begin at any byte; connects."""
        return self._line.welcome.journal_anywhere

    def journal_pages(
        self,
        position: int,
        stop: int | None = None,
        *,
        with_bodies: bool = True,
        anywhere: bool = False,
    ) -> Iterator[Records]:
        """Yield pages of the journal from a position to ``stop``, or to its current durable end.

        The next page is requested while this one is processed. The last may reach beyond ``stop``,
        by a record.

        Args:
            position: Where a record begins, or any byte if ``anywhere``.
            stop: Any byte; None: the durable end at the first page.
            with_bodies: As in ``journal``.
            anywhere: Begin with the first record at or after ``position``; only if
                ``reads_journal_anywhere``.

        Raises:
            JournalExpired: As in ``journal``.
        """
        line, most = self._line, self.options.read_bytes

        def ask(begin: int, *, anywhere: bool = False) -> None:
            size = most if stop is None else max(1, min(most, stop - begin))
            self._ask_journal(begin, size, 0.0, with_bodies=with_bodies, anywhere=anywhere)

        ask(position, anywhere=anywhere)
        try:
            while True:
                page = self._take_journal()
                if stop is None:
                    stop = page.durable
                if page.next < stop and page.next > page.position:
                    ask(page.next)
                    yield page
                    continue
                if page.next > page.position:
                    yield page
                return
        finally:
            line.drop()

    def _ask_journal(
        self,
        position: int,
        max_bytes: int,
        wait: float,
        *,
        with_bodies: bool,
        anywhere: bool = False,
    ) -> None:
        most = max_bytes or self.options.read_bytes
        asked = bodies.JournalRead(position, most, int(1000 * wait), not with_bodies, anywhere)
        self._line.send(Command.JOURNAL_READ, bodies.pack_journal_read(asked), wait)

    def _take_journal(self) -> Records:
        page = bodies.unpack_records(self._line.take())
        if page.expired:
            error = JournalExpired(f"the journal begins at {page.oldest}; {page.position} is gone")
            error.oldest = page.oldest
            try:
                raise error
            finally:
                del error  # see ``raising``
        return page

    def catalog(self, position: int = 0) -> Catalog:
        """Return the names for numbers in records at or after a position; right ``audit``."""
        catalog = Catalog()
        after = ""
        while True:
            asked = control.JournalCatalog(position=position, after=after)
            page = self._control(Command.JOURNAL_CATALOG, asked, control.JournalNames)
            if not after:
                catalog.as_of, catalog.oldest = page.as_of, page.oldest
            catalog.topics |= {one.number: one for one in page.topics}
            catalog.groups |= {one.number: one for one in page.groups}
            catalog.sessions |= {one.number: one for one in page.sessions}
            catalog.apps += page.apps
            after = page.next
            if not after:
                return catalog

    # -- progress

    def commit(self, topic: str | Topic, group: str, places: Mapping[int, int]) -> dict[int, int]:
        """Commit a group's progress (queue -> next offset); the progress never moves back.

        If the group is missing, it is created, and starts at earliest. Durable at return.

        Returns:
            The group's positions in these queues: as committed, or further.
        """
        asked = control.GroupCommit(
            topic=name_of(topic),
            group=check_name(group, "group"),
            places=[control.GroupPlace(queue=q, offset=o) for q, o in sorted(places.items())],
        )
        done = self._control(Command.GROUP_COMMIT, asked, control.GroupCommitted)
        return {one.queue: one.offset for one in done.places}

    def hold(self, name: str, position: int, note: str = "", *, back: bool = False) -> HoldPlaced:
        """Keep the journal from a position on; a hold only moves forward unless ``back``.

        Durable at return. A position below the oldest one kept becomes that one.
        """
        asked = control.HoldPut(name=name, position=position, note=note, back=back)
        return self._control(Command.HOLD_PUT, asked, control.HoldPlaced)

    def drop_hold(self, name: str) -> None:
        """Remove a hold; no error if there is none."""
        self._control(Command.HOLD_DELETE, control.HoldDelete(name=name), control.Nothing)

    def holds(self) -> Holds:
        """Return all holds, and the beginning and end of the journal."""
        return self._control(Command.HOLD_LIST, control.HoldList(), control.Holds)

    def status(self) -> Status:
        """Return the status of the broker."""
        return self._control(Command.STATUS, control.StatusAsk(), control.Status)

    def _control(self, command: Command, asked: msgspec.Struct, kind: type[T]) -> T:
        return control.decode_answer(self._line.ask(command, control.encode(asked)), kind)
