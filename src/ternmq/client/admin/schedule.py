"""Cancels scheduled messages."""

from __future__ import annotations

from contextlib import suppress

from ternmq.client.connection.session import Session
from ternmq.client.content.message import Receipt, is_message_id
from ternmq.client.content.validation import text
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.model.errors import InvalidRequest, MessageNotFound
from ternmq.wire import control
from ternmq.wire.commands import Command


class Schedule:
    """Cancels scheduled messages. Not thread-safe: call it from the client's loop."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def cancel(self, what: Receipt | str | Topic, id_: str) -> None:
        """Cancel a message as ``Client.cancel``."""
        text("id", id_)
        if isinstance(what, Receipt):
            if id_:
                raise InvalidRequest("cancel takes a receipt, or a topic and an id")
            topic, id_ = what.topic, what.id
        elif isinstance(what, str | Topic):
            topic = name_of(what)
        else:
            raise InvalidRequest(f"what is a receipt or a topic, not {type(what).__name__}")
        if not id_:
            raise InvalidRequest("cancel needs the id of the message, or its receipt")
        if is_message_id(id_):
            with suppress(MessageNotFound):  # an application's id may look like one of the broker
                await self._ask(control.ScheduleCancel(topic=topic, id=id_))
                return
        await self._ask(control.ScheduleCancel(topic=topic, application_id=id_))

    async def _ask(self, asked: control.ScheduleCancel) -> None:
        await self._session.control(Command.SCHEDULE_CANCEL, asked, control.Nothing)
