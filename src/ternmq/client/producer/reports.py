"""Reports of a producer: how many messages it sent, and how many it gave up.

Counted since the client began, per topic and bucket of born time (``BUCKET_US``); reported every
``BEAT`` seconds and at close (REPORT), so that an audit can compare what was sent with what is
stored. When a bucket is over it is reported once more, as closed: from then on a missing sequence
counts as lost. The last buckets of a producer that is killed are never closed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Final, Protocol

from ternmq.client.connection.link import Link
from ternmq.client.connection.session import Member, Session
from ternmq.model.errors import ConnectionLost, Forbidden, TernMQError, UnknownTopic
from ternmq.wire import control
from ternmq.wire.commands import Command

log: Final = logging.getLogger("ternmq")

BUCKET_US: Final = 600_000_000
BEAT: Final = 10.0
"""Seconds between reports."""
MAX_RUNS: Final = 1000
"""Most runs of sequences given up or left out that a bucket lists."""
_PAUSE: Final = 0.1
"""Seconds before the last report is tried again."""
_ENTRIES: Final = 100
"""Most entries of a report."""
_KEPT: Final = 3
"""Number of buckets after which one is forgotten: until then, sends born in it may be given up."""


class _Count:
    __slots__ = ("changed", "closed", "first", "given_up", "left_out", "runs", "sent", "stop")

    def __init__(self) -> None:
        self.sent = 0
        self.given_up = 0
        self.left_out = 0
        self.first = 0
        self.stop = 0
        self.runs: list[tuple[int, int]] = []
        self.changed = False
        self.closed = False  # and reported as closed

    def name(self, first: int, count: int) -> None:
        """Record sequences that need not be stored."""
        self.changed = True
        runs = self.runs
        if runs and runs[-1][1] == first:
            runs[-1] = runs[-1][0], first + count
        elif len(runs) < MAX_RUNS:
            runs.append((first, first + count))

    def entry(self, bucket_us: int, *, closed: bool) -> control.ReportEntry:
        """Return its entry in a report."""
        return control.ReportEntry(
            bucket_us=bucket_us,
            sent=self.sent,
            given_up=self.given_up,
            left_out=self.left_out,
            first=self.first,
            stop=self.stop,
            closed=closed,
            runs=[control.SequenceRun(first=first, stop=stop) for first, stop in self.runs],
        )


class _Topic:
    """The counts of a topic: of its messages with the sequences from ``since`` on, and others.

    Attributes:
        number: Its number; 0 before the first answer from it.
        since: The first sequence that is counted here before its answer comes.
        over: Whether it was deleted and made again: nothing more is sent to this one.
        buckets: The counts by the beginning of their bucket.
    """

    __slots__ = ("buckets", "number", "over", "since")

    def __init__(self, number: int, since: int) -> None:
        self.number = number
        self.since = since
        self.over = False
        self.buckets: dict[int, _Count] = {}

    def count(self, born_us: int) -> _Count:
        """Return the counts of the bucket of a time."""
        bucket = born_us - born_us % BUCKET_US
        counted = self.buckets.get(bucket)
        if counted is None:
            counted = self.buckets[bucket] = _Count()
        return counted


class Counts:
    """The counts of one producer. Not thread-safe: call it from the client's loop.

    A topic that is deleted and made again under its name is another topic. Only the answer to a
    send shows which of the two has stored it: until then the messages are counted for the one that
    answered last, and then moved if it was the other.
    """

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[str, list[_Topic]] = {}
        """Name -> the topics of that name, the newest last."""

    def sent(self, topic: str, born_us: int, first: int, count: int) -> None:
        """Count messages that were sent with the sequences from ``first`` on."""
        there = (self._topics.get(topic) or self._named(topic))[-1]
        counted = there.buckets.get(born_us - born_us % BUCKET_US) or there.count(born_us)
        if not counted.sent:
            counted.first = first
        counted.sent += count
        counted.stop = first + count
        counted.changed = True

    def answered(self, topic: str, number: int, born_us: int, first: int, count: int) -> None:
        """Record which topic has answered the send of messages.

        Args:
            topic: Its name.
            number: Its number.
            born_us: Born time of the messages.
            first: Their first sequence.
            count: Their number.
        """
        known = self._topics.get(topic)
        home = known[0] if known is not None and len(known) == 1 else self._home(topic, first)
        if home.number == number:
            return
        if not home.number:
            home.number = number
            return
        known = self._topics[topic]
        there = next((one for one in known if one.number == number), None)
        if there is None:
            for one in known:
                one.over = True
            stops = [one.stop for part in known for one in part.buckets.values()]
            stop = max(stops, default=first + count)
            there = _Topic(number, stop)
            known.append(there)
        was = home.buckets.get(born_us - born_us % BUCKET_US)
        if was is not None:  # else it was reported long ago, and is forgotten
            was.sent -= count
            was.changed = True
        now = there.count(born_us)
        now.first = min(now.first, first) if now.sent else first
        now.sent += count
        now.stop = max(now.stop, first + count)
        now.changed = True

    def given_up(self, topic: str, born_us: int, first: int, count: int) -> None:
        """Count sent messages that are given up; whether they are stored may be unknown."""
        counted = self._home(topic, first).count(born_us)
        counted.given_up += count
        counted.name(first, count)

    def left_out(self, topic: str, number: int, born_us: int, sequences: Iterable[int]) -> None:
        """Count messages that a topic did not store, since it has their application ids."""
        there = next(one for one in self._topics[topic] if one.number == number)
        counted = there.count(born_us)
        for sequence in sequences:
            counted.left_out += 1
            counted.name(sequence, 1)

    def again(self, report: control.Report) -> None:
        """Mark the entries of a report that did not arrive, so that they are reported again."""
        known = self._topics[report.topic]
        # The number of the only one may have become known meanwhile.
        there = next((one for one in known if one.number == report.topic_number), known[0])
        for entry in report.entries:
            there.count(entry.bucket_us).changed = True

    def _home(self, topic: str, first: int) -> _Topic:
        """Return the topic for which a sequence was counted when it was sent."""
        known = self._named(topic)
        if len(known) == 1:
            return known[0]
        return next((one for one in reversed(known) if one.since <= first), known[0])

    def _named(self, topic: str) -> list[_Topic]:
        """Return the topics of a name."""
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = [_Topic(0, 0)]
        return known

    def reports(self, producer: int, now_us: int, *, ends: bool = False) -> list[control.Report]:
        """Return the buckets that changed since the last time, or were closed since.

        Args:
            producer: The producer's id.
            now_us: Its clock.
            ends: Whether it sends no more.
        """
        found: list[control.Report] = []
        for topic, known in self._topics.items():
            for there in known:
                entries = _entries(there, now_us, ends=ends or there.over)
                for start in range(0, len(entries), _ENTRIES):
                    some = entries[start : start + _ENTRIES]
                    found.append(
                        control.Report(
                            topic=topic,
                            topic_number=there.number,
                            producer=producer,
                            entries=some,
                        )
                    )
            if len(known) > 1:
                known[:-1] = [one for one in known[:-1] if one.buckets]
        return found


def _entries(topic: _Topic, now_us: int, *, ends: bool) -> list[control.ReportEntry]:
    """Return a topic's entries for a report; forget what was reported and is old."""
    entries: list[control.ReportEntry] = []
    told: list[int] = []
    for bucket, one in sorted(topic.buckets.items()):
        closed = ends or bucket + BUCKET_US <= now_us
        if one.changed or closed > one.closed:
            entries.append(one.entry(bucket, closed=closed))
        else:
            told.append(bucket)
        one.changed = False
        one.closed = closed
    for bucket in told:  # the others may have to be reported again
        if bucket + _KEPT * BUCKET_US <= now_us:
            del topic.buckets[bucket]
    return entries


class Counted(Protocol):
    """A producer whose counts are reported."""

    @property
    def id(self) -> int:
        """Its id."""

    @property
    def counts(self) -> Counts:
        """Its counts."""


class Reporter(Member):
    """Sends the reports, from the first connection on. Call it from the client's loop."""

    def __init__(self, session: Session, producer: Counted) -> None:
        self._session = session
        self._producer = producer
        self._task: asyncio.Task[None] | None = None

    def opened(self, link: Link, *, resumed: bool) -> None:
        """Start to report at the first connection."""
        if self._task is None:
            self._task = self._session.loop.create_task(self._run(), name="ternmq-report")

    def stop(self) -> None:
        """Stop reporting."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            try:
                await self.report(BEAT)
            except TernMQError as error:
                log.debug("counts were not reported: %s", error)

    async def last(self, timeout: float) -> None:
        """Report for the last time; try again until the timeout, since no later report follows."""
        loop = self._session.loop
        until = loop.time() + timeout
        while True:
            try:
                await self.report(max(_PAUSE, until - loop.time()), ends=True)
            except TernMQError as error:
                again = error.retriable or isinstance(error, ConnectionLost)
                if again and loop.time() + _PAUSE < until:
                    await asyncio.sleep(_PAUSE)
                    continue
                log.info("the last counts of sent messages are not reported: %s", error)
            return

    async def report(self, timeout: float, *, ends: bool = False) -> None:
        """Report what changed since the last time; the next report includes one that fails.

        A report that the broker will never accept (its topic is gone) does not block others.

        Args:
            timeout: Seconds for each.
            ends: Whether the producer sends no more.

        Raises:
            TernMQError: The broker did not accept it.
        """
        producer = self._producer
        left = producer.counts.reports(producer.id, time.time_ns() // 1000, ends=ends)
        try:
            while left:
                try:
                    await self._session.control(Command.REPORT, left[0], control.Nothing, timeout)
                except (UnknownTopic, Forbidden) as error:
                    log.debug("the counts of %r cannot be reported: %s", left[0].topic, error)
                left.pop(0)
        finally:
            for report in left:
                producer.counts.again(report)
