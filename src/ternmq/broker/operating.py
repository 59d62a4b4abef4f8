"""What operators do to a group's progress on a queue: where it reads, and the rows that failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ternmq.broker.administration import Administration
from ternmq.broker.catalog import Queue
from ternmq.broker.delivery import Delivery
from ternmq.broker.groupqueue import GroupQueue
from ternmq.broker.parking import Parking
from ternmq.broker.replies import DoneReply, SettleReply
from ternmq.broker.settling import Settling
from ternmq.broker.timers import TimerStore
from ternmq.broker.views import Views
from ternmq.model.errors import InvalidRequest, UnknownQueue
from ternmq.record.facts import Move, Outcome


class _Place(NamedTuple):
    queue: Queue
    held: GroupQueue


class Operating:
    """Loop only."""

    __slots__ = ("_administration", "_delivery", "_parking", "_settling", "_timers", "_views")

    def __init__(
        self,
        views: Views,
        timers: TimerStore,
        delivery: Delivery,
        settling: Settling,
        parking: Parking,
        administration: Administration,
    ) -> None:
        self._views = views
        self._timers = timers
        self._delivery = delivery
        self._settling = settling
        self._parking = parking
        self._administration = administration

    # -- positions --------------------------------------------------------------------------------

    def reset(self, now_us: int, topic: str, group: str, queue: int, offset: int) -> DoneReply:
        """Make everything from an offset on unread.

        What is leased, ready or waiting is forgotten; dead letters below the offset stay.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest.
        """
        found, held = self._place(topic, group, queue)
        if not found.first <= offset <= found.next:
            raise InvalidRequest(f"offset must be {found.first} to {found.next}")
        end = self._delivery.move_cursor(now_us, held, Move.RESET, offset)
        self._administration.rewinds += 1
        self._parking.wake_for(held)
        self._timers.arm_again(held)
        return DoneReply(end)

    def skip(self, now_us: int, topic: str, group: str, queue: int, offset: int) -> DoneReply:
        """Pass over what is unread below an offset; what is owed stays owed.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest.
        """
        found, held = self._place(topic, group, queue)
        if not held.cursor <= offset <= found.next:
            raise InvalidRequest(f"offset must be {held.cursor} to {found.next}")
        return DoneReply(self._delivery.move_cursor(now_us, held, Move.SKIP, offset))

    # -- failures ---------------------------------------------------------------------------------

    def retry_now(
        self, now_us: int, topic: str, group: str, queue: int, offsets: Sequence[int]
    ) -> SettleReply:
        """Let rows that wait for a retry (or are held) come at once; attempts stay as they are.

        Raises:
            LeaseExpired: none of them waits.
            UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest.
        """
        held = self._place(topic, group, queue).held
        self._check_offsets(offsets)
        return self._settling.operate(now_us, held, offsets, Outcome.RETRY)

    def delete_failures(
        self, now_us: int, topic: str, group: str, queue: int, offsets: Sequence[int]
    ) -> SettleReply:
        """Give up rows that wait for a retry or are dead: they are done.

        Raises:
            LeaseExpired: none of them waits or is dead.
            UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest.
        """
        held = self._place(topic, group, queue).held
        self._check_offsets(offsets)
        return self._settling.operate(now_us, held, offsets, Outcome.DONE)

    def _check_offsets(self, offsets: Sequence[int]) -> None:
        most = self._views.limits.pull_messages
        if len(offsets) > most:
            raise InvalidRequest(f"at most {most} offsets at once")

    def _place(self, topic: str, group: str, queue: int) -> _Place:
        subscription = self._views.catalog.subscription(topic, group)
        if not 0 <= queue < len(subscription.queues):
            raise UnknownQueue(f"topic {topic!r} has no queue {queue}")
        return _Place(subscription.topic.queues[queue], subscription.queues[queue])
