"""What a producer tells of itself: how many messages it sent, and how many it gave up.

Counted since the client began, per topic and 10-minute bucket of born time; reported every ten
seconds and at close (REPORT), so that an audit can compare what was sent with what is stored.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from ternmq.client.link import Link
from ternmq.client.session import Member, Session
from ternmq.model.errors import TernMQError
from ternmq.wire import control
from ternmq.wire.commands import Command

if TYPE_CHECKING:
    from ternmq.client.producer import Producer

log: Final = logging.getLogger("ternmq")

BUCKET_US: Final = 600_000_000
BEAT: Final = 10.0
"""Seconds between reports."""
_KEPT: Final = 3
"""Buckets of a topic that are kept: a report may still change the last but one."""


class _Count:
    __slots__ = ("changed", "given_up", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.given_up = 0
        self.changed = False


class Counts:
    """The counts of one producer. Loop only."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, _Count]] = {}

    def sent(self, topic: str, born_us: int, count: int) -> None:
        """Messages were given sequences and sent."""
        counted = self._count(topic, born_us)
        counted.sent += count
        counted.changed = True

    def given_up(self, topic: str, born_us: int, count: int) -> None:
        """Messages that were sent are not tried again; whether they are stored may be unknown."""
        counted = self._count(topic, born_us)
        counted.given_up += count
        counted.changed = True

    def again(self, report: control.Report) -> None:
        """A report did not arrive: what it told is to be told again."""
        for entry in report.entries:
            self._count(report.topic, entry.bucket_us).changed = True

    def _count(self, topic: str, born_us: int) -> _Count:
        buckets = self._topics.get(topic)
        if buckets is None:
            buckets = self._topics[topic] = {}
        bucket = born_us - born_us % BUCKET_US
        counted = buckets.get(bucket)
        if counted is None:
            counted = buckets[bucket] = _Count()
        return counted

    def reports(self, producer: int) -> list[control.Report]:
        """Return what changed since the last time."""
        found: list[control.Report] = []
        for topic, buckets in self._topics.items():
            entries = [
                control.ReportEntry(bucket_us=bucket, sent=one.sent, given_up=one.given_up)
                for bucket, one in sorted(buckets.items())
                if one.changed
            ]
            told = [bucket for bucket, one in buckets.items() if not one.changed]
            for one in buckets.values():
                one.changed = False
            if entries:
                found.append(control.Report(topic=topic, producer=producer, entries=entries))
            for bucket in sorted(buckets)[:-_KEPT]:
                if bucket in told:  # else it is perhaps to be told again
                    del buckets[bucket]
        return found


class Reporter(Member):
    """Sends the reports, from the first connection on. Loop only."""

    def __init__(self, session: Session, producer: Producer) -> None:
        self._session = session
        self._producer = producer
        self._task: asyncio.Task[None] | None = None

    def opened(self, link: Link, *, resumed: bool) -> None:
        """See ``session.Member``."""
        if self._task is None:
            self._task = self._session.loop.create_task(self._run(), name="ternmq-report")

    def stop(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            try:
                await self.report(BEAT)
            except TernMQError as error:
                log.debug("counts were not reported: %s", error)

    async def report(self, timeout: float) -> None:
        """Report what changed since the last time; a report that fails is made up for by the next.

        Raises:
            TernMQError: The broker did not take it.
        """
        producer = self._producer
        left = producer.counts.reports(producer.id)
        try:
            while left:
                await self._session.control(Command.REPORT, left[0], control.Nothing, timeout)
                left.pop(0)
        finally:
            for report in left:
                producer.counts.again(report)
