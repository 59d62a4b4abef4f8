"""The commands about scheduled messages: cancel, list, hours."""

from __future__ import annotations

from ternmq.access import Authoriser
from ternmq.broker.query.messages import Queries
from ternmq.broker.query.scheduled import ScheduledQueries
from ternmq.model.errors import Forbidden, InvalidRequest
from ternmq.server.commands.control import Answer, BrokerCommands, ControlCommands
from ternmq.server.commands.lookup import message_id
from ternmq.server.desk.desk import Desk, ReadingDesk
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller
from ternmq.wire.session import Request

_LARGEST_ENTRY = 2**64 - 1


class ScheduleLists(ControlCommands):
    """Handlers that list scheduled messages. Not thread-safe: call it from the broker's loop."""

    def __init__(self, desk: ReadingDesk, authoriser: Authoriser, queries: Queries) -> None:
        super().__init__(desk, authoriser, queries)
        self._scheduled = ScheduledQueries(desk.core.broker)
        self.handlers |= {
            Command.SCHEDULE_LIST: self.control(
                Command.SCHEDULE_LIST, control.ScheduleList, self.list_rows
            ),
            Command.SCHEDULE_HOURS: self.control(
                Command.SCHEDULE_HOURS, control.ScheduleHours, self.list_hours
            ),
        }

    def list_rows(self, caller: Caller, asked: control.ScheduleList) -> Answer:
        """SCHEDULE_LIST: a page of the scheduled messages of a topic."""
        first = _number(asked.after)
        page = self._scheduled.rows(asked.topic, asked.since_us, asked.until_us, first, asked.limit)
        following = "" if page.next is None else str(page.next)
        answer = control.ScheduledPage(messages=page.rows, next=following)
        return answer, self._broker.journal.end

    def list_hours(self, caller: Caller, asked: control.ScheduleHours) -> Answer:
        """SCHEDULE_HOURS: how many messages of a topic are due in each hour."""
        page = self._scheduled.hours(asked.topic, _number(asked.after), asked.limit)
        following = "" if page.next is None else str(page.next)
        return control.ScheduledHours(hours=page.hours, next=following), self._broker.journal.end


class ScheduleCommands(BrokerCommands):
    """The handler that cancels them. Not thread-safe: call it from the broker's loop."""

    def __init__(self, desk: Desk, authoriser: Authoriser, queries: Queries) -> None:
        super().__init__(desk, authoriser, queries)
        self.handlers[Command.SCHEDULE_CANCEL] = self.cancel

    def cancel(self, caller: Caller, request: Request) -> None:
        """SCHEDULE_CANCEL: cancel a scheduled message; the answer leaves when it is durable.

        An app that may send to the topic may cancel, and one that may manage everything: this one
        acts as an operator, and the audit has a record of it.
        """
        asked = control.decode(request.body, control.ScheduleCancel)
        if (asked.id is None) is (asked.application_id is None):
            raise InvalidRequest("state one of id, application_id")
        operator = self._as_operator(caller, asked.topic)
        now, broker = self._core.now_us(), self._broker
        before = broker.journal.end
        if asked.id is not None:
            producer, sequence = message_id(asked.id)
            reply = broker.cancel_scheduled(now, asked.topic, producer, sequence, operator=operator)
        else:
            assert asked.application_id is not None
            reply = broker.cancel_scheduled_id(
                now, asked.topic, asked.application_id, operator=operator
            )
        if operator and broker.journal.end != before:  # else it was cancelled before
            self._desk.audit.changed(
                caller.app,
                caller.address,
                Command.SCHEDULE_CANCEL,
                asked.topic,
                target=asked.id or asked.application_id or "",
            )
        caller.answer(request, control.encode(control.Nothing()), reply.position)

    def _as_operator(self, caller: Caller, topic: str) -> bool:
        """Return whether the app cancels as an operator, not as one that sends to the topic.

        Raises:
            Forbidden, Unauthenticated: It may not cancel.
        """
        try:
            self._authoriser.check(caller.app, Command.SCHEDULE_CANCEL, topic)
        except Forbidden:
            if not self._authoriser.operates(caller.app, Command.SCHEDULE_CANCEL):
                raise
            return True
        return False


def _number(token: str) -> int:
    """Return the number that a token of these lists is; 0 for an empty one."""
    if not token:
        return 0
    if not (token.isascii() and token.isdigit() and len(token) <= 20):
        raise InvalidRequest("after must be the `next` of the previous page")
    number = int(token)
    if number > _LARGEST_ENTRY:
        raise InvalidRequest("after must be the `next` of the previous page")
    return number
