"""The commands that deliver rows to a group again: GROUP_REPLAY and FAILED_REDRIVE."""

from __future__ import annotations

from contextlib import suppress

from ternmq.access import Authoriser
from ternmq.broker.catalog.catalog import Topic
from ternmq.broker.query.failed import FailedSearch
from ternmq.broker.query.messages import Queries
from ternmq.journal.store.lookup import Found, State
from ternmq.model.errors import InvalidRequest, MessageNotFound
from ternmq.record.fact.facts import Span
from ternmq.server.commands.control import Answer, BrokerCommands
from ternmq.server.commands.failed import selection_of
from ternmq.server.commands.lookup import is_message_id, message_id
from ternmq.server.desk.desk import Desk
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller


class ReplayCommands(BrokerCommands):
    """Handlers of replay and redrive. Not thread-safe: call it from the broker's loop."""

    def __init__(self, desk: Desk, authoriser: Authoriser, queries: Queries) -> None:
        super().__init__(desk, authoriser, queries)
        self._search = FailedSearch(desk.core.broker)
        self.handlers |= {
            Command.GROUP_REPLAY: self.control(
                Command.GROUP_REPLAY, control.GroupReplay, self.replay
            ),
            Command.FAILED_REDRIVE: self.control(
                Command.FAILED_REDRIVE, control.FailedRedrive, self.redrive
            ),
        }

    def replay(self, caller: Caller, asked: control.GroupReplay) -> Answer:
        """GROUP_REPLAY: deliver the rows of spans again, or messages by their ids."""
        if bool(asked.spans) is bool(asked.ids):
            raise InvalidRequest("give either spans or ids")
        spans: dict[int, list[Span]] = {}
        missing: list[str] = []
        for span in asked.spans:
            if span.start >= span.stop:
                raise InvalidRequest(f"a span has start < stop, not {span.start} and {span.stop}")
            spans.setdefault(span.queue, []).append((span.start, span.stop))
        if asked.ids:  # all that may wait for the disk, before anything is changed
            topic = self._broker.views.catalog.subscription(asked.topic, asked.group).topic
            for text in asked.ids:
                try:
                    found = self._named(topic, text)
                except MessageNotFound:
                    missing.append(text)
                    continue
                if found.state is not State.STORED:
                    missing.append(text)
                else:
                    spans.setdefault(found.queue, []).append((found.offset, found.offset + 1))
        reply = self._broker.operating.replay(
            self._core.now_us(),
            caller.session,
            asked.topic,
            asked.group,
            spans,
            dry_run=asked.dry_run,
        )
        plans = reply.value
        answer = control.GroupReplayed(
            queues=[
                control.ReplayedQueue(
                    queue=plan.progress.queue,
                    again=plan.rows,
                    unread=plan.unread,
                    expired=plan.expired,
                    filtered=plan.filtered,
                )
                for plan in plans
            ],
            rest=[
                control.ReplaySpan(queue=plan.progress.queue, start=start, stop=stop)
                for plan in plans
                for start, stop in plan.rest
            ],
            missing=missing,
        )
        return answer, reply.position

    def _named(self, topic: Topic, text: str) -> Found:
        """Return the message with a message id, or else the newest one with an application id.

        An application's id may look like one of the broker.

        Raises:
            MessageNotFound, WouldBlock.
        """
        if is_message_id(text):
            with suppress(MessageNotFound):
                found = self._queries.by_id(*message_id(text))
                if found.topic == topic.number:
                    return found
        return self._queries.by_application_id(topic.name, text)

    def redrive(self, caller: Caller, asked: control.FailedRedrive) -> Answer:
        """FAILED_REDRIVE: redrive the dead letters at the given offsets, or the next ones."""
        offsets, more = asked.offsets, False
        unmatched: set[int] = set()
        if offsets and asked.only is not None:
            chosen = self._search.matching(
                asked.topic, asked.group, asked.queue, selection_of(asked.only), offsets
            )
            unmatched = set(offsets).difference(chosen)
            offsets = chosen
        elif asked.only is not None:
            raise InvalidRequest("only applies to named offsets: find them with FAILED_QUERY")
        if not asked.offsets:
            offsets = self._queries.dead_offsets(
                asked.topic, asked.group, asked.queue, after=asked.after, limit=asked.limit + 1
            )
            more = len(offsets) > asked.limit
            offsets = offsets[: asked.limit]
        reply = self._broker.operating.redrive(
            self._core.now_us(),
            caller.session,
            asked.topic,
            asked.group,
            asked.queue,
            offsets,
            dry_run=asked.dry_run,
        )
        plan = reply.value
        rest = [offset for start, stop in plan.rest for offset in range(start, stop)]
        left = {*rest, *plan.refused}
        answer = control.FailedRedriven(
            done=sorted({offset for offset in offsets if offset not in left}),
            missing=sorted([*plan.refused, *unmatched]),
            rest=rest,
            more=more,
        )
        return answer, reply.position
