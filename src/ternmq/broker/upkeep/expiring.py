"""Sweeps groups whose rows expire and that nobody pulls, so that they do not keep the journal.

A round over all group queues of topics with rows that may expire begins at most every
``ROUND_US``; each second, some of them are looked at. Rows are judged as in a pull
(`delivery.expiry`); only those at the cursor of the group are, up to the first that has not
expired. Group queues with more expired rows than one look records are looked at again, one after
the other, in the same second: so many rows may expire in a second as are sent.

A step does a piece at a time while the turn has time for it, so it never makes a turn long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

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
"""Group queues of a round looked at in a second."""
WORK: Final = 100_000
"""Expired rows recorded in a second, about, with a part of those looked at; see ``sweep``."""
PIECE: Final = 500
"""Likewise, in one look: about a millisecond."""


class _Place(NamedTuple):
    """A group queue."""

    subscription: Subscription
    queue: Queue
    progress: Progress


class Expiring:
    """Looks for expired rows of groups that nobody pulls.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = (
        "_begun_us", "_catalog", "_lifetimes", "_looks", "_more", "_places", "_second_us",
        "_under_way", "_work",
    )  # fmt: skip

    def __init__(self, ledger: Ledger, lifetimes: Lifetimes) -> None:
        self._catalog = ledger.views.catalog
        self._lifetimes = lifetimes
        self._places: Iterator[_Place] = iter(())
        self._more: dict[Progress, _Place] = {}
        """Group queues that may have more expired rows, in the order in which they are next."""
        self._begun_us = 0
        self._second_us = 0
        self._under_way = False
        """Whether the round is not at its end."""
        self._looks = 0
        """Group queues of the round that may be looked at in this second."""
        self._work = 0
        """Work that may be done in this second."""

    def step(self, now_us: int, may_go_on: Callable[[], bool]) -> None:
        """Look at some group queues, one at least, while ``may_go_on()``.

        Raises:
            WouldBlock: Run the job; a later call goes on here.
            JournalFull: No segment is ready; a later call goes on here.
            DiskReadError, CorruptJournal: Rows cannot be read; the next call goes on behind them.
        """
        if not self._catalog.expiring:
            return
        if not 0 <= now_us - self._second_us < SECOND_US:
            self._second_us = now_us
            self._looks, self._work = LOOKS, WORK
        while self._work > 0 and (place := self._next(now_us)) is not None:
            self._look(now_us, place)
            if not may_go_on():
                return

    @property
    def goes_on(self) -> bool:
        """Whether more group queues may be looked at in this second."""
        return self._work > 0 and (bool(self._more) or (self._under_way and self._looks > 0))

    @property
    def watches(self) -> bool:
        """Whether time alone may bring work."""
        return bool(self._catalog.expiring)

    def _next(self, now_us: int) -> _Place | None:
        """Return the next group queue to be looked at: of the round, then those with more."""
        while self._looks > 0:
            place = next(self._places, None)
            self._under_way = place is not None
            if place is None:
                if now_us - self._begun_us < ROUND_US:
                    break
                self._begun_us = now_us
                self._places = self._round()
                continue
            self._looks -= 1
            if place.progress not in self._more:
                return place
        if not self._more:
            return None
        return self._more.pop(next(iter(self._more)))

    def _look(self, now_us: int, place: _Place) -> None:
        subscription, queue, progress = place
        if self._catalog.consumer_of(progress) is not subscription:
            return  # it is gone
        cursor, most = progress.cursor, min(PIECE, self._work)
        try:
            work = self._lifetimes.sweep(now_us, subscription, queue, progress, most)
        except (WouldBlock, JournalFull):
            self._more[progress] = place
            raise
        self._work -= work
        if work >= most and progress.cursor > cursor:
            self._more[progress] = place

    def _round(self) -> Iterator[_Place]:
        for number in list(self._catalog.expiring):
            topic = self._catalog.topics.get(number)
            if topic is None:
                continue
            for subscription in list(topic.subscriptions.values()):
                for queue, progress in zip(topic.queues, subscription.queues, strict=True):
                    yield _Place(subscription, queue, progress)
