"""What operators do to a group: reset and skip, replay and redrive, retry and delete failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ternmq.broker.catalog.catalog import Queue
from ternmq.broker.delivery.cursors import move_cursor
from ternmq.broker.delivery.replays import READ_ROWS, Replaying, ReplayPlan
from ternmq.broker.delivery.settles import Settling
from ternmq.broker.gate.replies import DoneReply, SettleReply, ValueReply
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.runs import union
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.operation.administration import Administration
from ternmq.model.errors import InvalidRequest, UnknownQueue
from ternmq.record.fact.facts import Move, Outcome, Span
from ternmq.record.fact.replay import Cause


class _Place(NamedTuple):
    queue: Queue
    progress: Progress


class NextOffset(NamedTuple):
    """The next offset of a queue."""

    queue: int
    offset: int


class Operating:
    """Decides what operators do to a group: reset, skip, commit, replay, redrive, retry, delete.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_administration", "_ledger", "_replaying", "_settling", "_views")

    def __init__(
        self,
        ledger: Ledger,
        settling: Settling,
        administration: Administration,
        replaying: Replaying,
    ) -> None:
        self._ledger = ledger
        self._views = ledger.views
        self._settling = settling
        self._administration = administration
        self._replaying = replaying

    # -- positions --------------------------------------------------------------------------------

    def reset(self, now_us: int, topic: str, group: str, queue: int, offset: int) -> DoneReply:
        """Make everything from an offset on unread.

        Leased, ready and waiting rows are forgotten; dead letters below the offset stay.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest.
        """
        found, progress = self._place(topic, group, queue)
        found.check_reset(offset)
        end = move_cursor(self._ledger, now_us, progress, Move.RESET, offset)
        ledger = self._ledger
        ledger.judge_again()
        ledger.wakes.wake_for(progress)
        ledger.timers.arm_again(progress)
        return DoneReply(end)

    def skip(self, now_us: int, topic: str, group: str, queue: int, offset: int) -> DoneReply:
        """Pass over unread rows below an offset; rows that are owed stay owed.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest.
        """
        found, progress = self._place(topic, group, queue)
        if not progress.cursor <= offset <= found.next:
            raise InvalidRequest(
                f"offset must be {progress.cursor} to {found.next}: a skip goes forward, from "
                "where the group continues to the end of the queue"
            )
        return DoneReply(move_cursor(self._ledger, now_us, progress, Move.SKIP, offset))

    def commit(
        self, now_us: int, topic: str, group: str, places: Sequence[NextOffset]
    ) -> ValueReply[list[NextOffset]]:
        """Store the position of a group that tracks its position itself; positions only grow.

        A missing group is made, starting at the earliest offset. Rows that are owed stay owed. The
        reply's value is a list of ``NextOffset``: the group's position on each queue now.

        Raises:
            UnknownTopic, UnknownQueue, InvalidName, Busy.
            InvalidRequest: an offset is above the queue's end; then nothing is done.
        """
        catalog = self._views.catalog
        found = catalog.topic(topic)
        for place in places:
            if not 0 <= place.queue < len(found.queues):
                raise UnknownQueue(f"topic {topic!r} has no queue {place.queue}")
            end = found.queues[place.queue].next
            if not 0 <= place.offset <= end:
                raise InvalidRequest(
                    f"offset {place.offset} of queue {place.queue} is above its end, {end}"
                )
        end = 0
        if group not in found.by_group:
            end = self._administration.subscribe(now_us, topic, group).position
        subscription = catalog.subscription(topic, group)
        now: list[NextOffset] = []
        for place in places:
            progress = subscription.queues[place.queue]
            if place.offset > progress.cursor:
                end = move_cursor(self._ledger, now_us, progress, Move.COMMIT, place.offset)
            now.append(NextOffset(place.queue, progress.cursor))
        return ValueReply(end or self._ledger.end, value=now)

    # -- replay and redrive -----------------------------------------------------------------------

    def replay(
        self,
        now_us: int,
        session: int,
        topic: str,
        group: str,
        spans: Mapping[int, Sequence[Span]],
        *,
        dry_run: bool = False,
    ) -> ValueReply[list[ReplayPlan]]:
        """Deliver rows to a group again, whatever their state, as a new round.

        Args:
            now_us: broker time.
            session: the session that requests it.
            topic: its name.
            group: its name.
            spans: for each queue, the offsets.
            dry_run: return what would be done, and change nothing.

        Returns:
            Its value is ``list[ReplayPlan]``, one for each queue, by number: what was done;
            ``rest`` must be requested again.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue.
            ReplayTooLarge: too many rows would wait; nothing was done.
            WouldBlock: bytes must be read first; nothing was changed.
        """
        subscription = self._views.catalog.subscription(topic, group)
        places = [(self._place(topic, group, queue), spans[queue]) for queue in sorted(spans)]
        plans: list[ReplayPlan] = []
        looked = 0
        for (found, progress), named in places:
            if looked < READ_ROWS:
                plan = self._replaying.plan(subscription, found, progress, named)
                looked += plan.looked
            else:
                plan = ReplayPlan(progress, rest=union(named))
            plans.append(plan)
        if not dry_run:
            self._carry_out(now_us, session, plans, Cause.REPLAY)
        return ValueReply(self._ledger.end, value=plans)

    def redrive(
        self,
        now_us: int,
        session: int,
        topic: str,
        group: str,
        queue: int,
        offsets: Sequence[int],
        *,
        dry_run: bool = False,
    ) -> ValueReply[ReplayPlan]:
        """Deliver dead letters to their group again: attempts count from 1, failures stay known.

        Returns:
            Its value is a ``ReplayPlan``: what was done; ``refused`` offsets are no dead letters,
            ``rest`` must be requested again.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest.
            ReplayTooLarge: too many rows would wait; nothing was done.
            WouldBlock: bytes must be read first; nothing was changed.
        """
        self._check_offsets(offsets)
        subscription = self._views.catalog.subscription(topic, group)
        found, progress = self._place(topic, group, queue)
        plan = self._replaying.plan_redrive(subscription, found, progress, offsets)
        if not dry_run:
            self._carry_out(now_us, session, [plan], Cause.REDRIVE)
        return ValueReply(self._ledger.end, value=plan)

    def _carry_out(
        self, now_us: int, session: int, plans: Sequence[ReplayPlan], cause: Cause
    ) -> None:
        for plan in plans:
            if self._replaying.record(now_us, session, plan, cause):
                self._ledger.judge_again()
                self._ledger.timers.arm_again(plan.progress)

    # -- failures ---------------------------------------------------------------------------------

    def retry_now(
        self, now_us: int, topic: str, group: str, queue: int, offsets: Sequence[int]
    ) -> SettleReply:
        """Make rows that wait for a retry (or are held) due at once; their attempts do not change.

        Raises:
            LeaseExpired: none of them waits.
            UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest.
        """
        progress = self._place(topic, group, queue).progress
        self._check_offsets(offsets)
        return self._settling.operate(now_us, progress, offsets, Outcome.RETRY)

    def delete_failures(
        self, now_us: int, topic: str, group: str, queue: int, offsets: Sequence[int]
    ) -> SettleReply:
        """Delete rows that wait for a retry or are dead: they are done.

        Raises:
            LeaseExpired: none of them waits or is dead.
            UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest.
        """
        progress = self._place(topic, group, queue).progress
        self._check_offsets(offsets)
        return self._settling.operate(now_us, progress, offsets, Outcome.DONE)

    def _check_offsets(self, offsets: Sequence[int]) -> None:
        most = self._views.limits.pull_messages
        if len(offsets) > most:
            raise InvalidRequest(f"at most {most} offsets at once")

    def _place(self, topic: str, group: str, queue: int) -> _Place:
        subscription = self._views.catalog.subscription(topic, group)
        if not 0 <= queue < len(subscription.queues):
            raise UnknownQueue(f"topic {topic!r} has no queue {queue}")
        return _Place(subscription.topic.queues[queue], subscription.queues[queue])
