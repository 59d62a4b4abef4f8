"""Sweeps groups whose rows expire and that nobody pulls, so that they do not keep the journal.

A round over all group queues of topics with rows that may expire begins at most every
``ROUND_US``; each second, some of them are looked at. Rows are judged as in a pull
(`delivery.expiry`); only those at the cursor of the group are, up to the first that has not
expired.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ternmq.broker.catalog.catalog import Queue, Subscription
from ternmq.broker.delivery.lifetimes import Lifetimes
from ternmq.broker.group.progress import Progress
from ternmq.broker.ledger.ledger import Ledger
from ternmq.journal.cache.cold import WouldBlock
from ternmq.model.errors import JournalFull
from ternmq.model.types import SECOND_US

ROUND_US: Final = 10 * SECOND_US
"""Least time between the beginnings of two rounds."""
LOOKS: Final = 500
"""Group queues looked at in a second."""
WORK: Final = 1000
"""Expired rows recorded in a second, about, with a part of those looked at; see ``sweep``."""


class Expiring:
    """Looks for expired rows of groups that nobody pulls.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_again", "_begun_us", "_catalog", "_lifetimes", "_looked_us", "_places")

    def __init__(self, ledger: Ledger, lifetimes: Lifetimes) -> None:
        self._catalog = ledger.views.catalog
        self._lifetimes = lifetimes
        self._places: Iterator[tuple[Subscription, Queue, Progress]] = iter(())
        self._again: tuple[Subscription, Queue, Progress] | None = None
        """The group queue at which the last look ended: it may have more."""
        self._begun_us = 0
        self._looked_us = 0

    def step(self, now_us: int) -> None:
        """Look at some group queues, once a second.

        Raises:
            WouldBlock: Run the job; a later call goes on here.
            JournalFull: No segment is ready; a later call goes on here.
            DiskReadError, CorruptJournal: Rows cannot be read; the next call goes on behind them.
        """
        if not self._catalog.expiring or 0 <= now_us - self._looked_us < SECOND_US:
            return
        self._looked_us = now_us
        work = 0
        for _ in range(LOOKS):
            place = self._again or next(self._places, None)
            if place is None:
                if now_us - self._begun_us < ROUND_US:
                    break
                self._begun_us = now_us
                self._places = self._round()
                continue
            subscription, queue, progress = place
            self._again = None
            if self._catalog.consumer_of(progress) is not subscription:
                continue  # it is gone
            cursor = progress.cursor
            try:
                work += self._lifetimes.sweep(now_us, subscription, queue, progress, WORK - work)
            except (WouldBlock, JournalFull):
                self._again = place
                raise
            if work >= WORK:
                if progress.cursor > cursor:
                    self._again = place
                break

    @property
    def watches(self) -> bool:
        """Whether time alone may bring work."""
        return bool(self._catalog.expiring)

    def _round(self) -> Iterator[tuple[Subscription, Queue, Progress]]:
        for number in list(self._catalog.expiring):
            topic = self._catalog.topics.get(number)
            if topic is None:
                continue
            for subscription in list(topic.subscriptions.values()):
                for queue, progress in zip(topic.queues, subscription.queues, strict=True):
                    yield subscription, queue, progress
