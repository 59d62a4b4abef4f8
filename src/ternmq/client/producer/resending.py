"""Sends a batch again, with the same bytes: one refused for now, one whose connection was lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ternmq.client.connection.link import Link
from ternmq.client.connection.session import Session
from ternmq.client.producer.load import Load
from ternmq.model.errors import (
    OrderingKeyRequired,
    TernMQError,
    TopicNotOrdered,
    UnknownTopic,
)
from ternmq.wire.commands import Command

if TYPE_CHECKING:
    from ternmq.client.producer.producer import Producer

_OF_THE_TOPIC: Final = (OrderingKeyRequired, TopicNotOrdered, UnknownTopic)
"""Refusals that show that the client's facts about the topic are outdated."""


class Resending:
    """Sends batches of a producer again. Not thread-safe: call it from the client's loop.

    Attributes:
        count: Number of batches sent again.
    """

    __slots__ = ("_producer", "_session", "count")

    def __init__(self, producer: Producer, session: Session) -> None:
        self.count = 0
        self._producer = producer
        self._session = session

    def refused(self, load: Load, error: TernMQError) -> None:
        """Handle a refused batch: send it again after a pause, or give it up."""
        load.asked = False
        if load.over:
            self._producer.forget(load)
            return
        if isinstance(error, _OF_THE_TOPIC) or error.refresh_routes:
            load.lane.topic.facts = None  # requested again before the next load
        if error.retriable:
            load.last_error = error
            load.tries += 1
            loop = self._session.loop
            pause = self._producer.options.backoff.pause(load.tries)
            if loop.time() + pause < load.deadline and not self._session.closed:
                load.resting = True
                loop.call_later(pause, self._rested, load)
                return
        self._producer.finish(load, error)

    def _rested(self, load: Load) -> None:
        """Send a load again after its pause."""
        load.resting = False
        link = self._session.link
        if not load.over and not load.asked and link is not None:
            self._again(load, link)

    def unanswered(self, loads: Iterable[Load], link: Link) -> None:
        """Send the batches again that the previous connection left unanswered."""
        for load in loads:
            if not load.asked and not load.resting:
                self._again(load, link)

    def _again(self, load: Load, link: Link) -> None:
        load.asked = True
        self.count += 1
        link.ask(Command.SEND, load.frame, load)
