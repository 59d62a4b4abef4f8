"""A failed message, and what a request did to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ternmq.client.admin.failedquery import FailedState
from ternmq.client.admin.lookup import FoundMessage
from ternmq.wire.control import FailureInfo


@dataclass(slots=True, frozen=True)
class FailedMessage:
    """A message that failed.

    Attributes:
        queue: Number of its queue.
        offset: Its offset there.
        attempts: Number of attempts.
        deliveries: Number of deliveries.
        when: When it is delivered again, or when it became a dead letter. None: it is held.
        held: Whether it waits for an operator; later messages of its ordering key, or of its queue
            if the group locks queues, wait, too.
        failures: Its failures, oldest first. If the consumer gave no reason, ``reason`` is
            ``the lease ended`` or ``the consumer was gone``.
        message: Its content; None if it is no longer kept.
        dead: Whether it is a dead letter.
    """

    queue: int
    offset: int
    attempts: int
    deliveries: int
    when: datetime | None
    held: bool
    failures: tuple[FailureInfo, ...]
    message: FoundMessage | None
    dead: bool = False

    @property
    def state(self) -> FailedState:
        """``waiting`` (for its retry), ``held`` or ``dead``."""
        return "dead" if self.dead else "held" if self.held else "waiting"

    @property
    def reason(self) -> str:
        """Why it failed the last time: the ``reason`` of the last of ``failures``."""
        return self.failures[-1].reason if self.failures else ""


@dataclass(slots=True, frozen=True)
class FailedOutcome:
    """The outcome of a retry or delete for one message.

    Attributes:
        queue: Number of its queue.
        offset: Its offset there.
        done: Whether it was done (in a dry run: would be done); False: it no longer matched.
    """

    queue: int
    offset: int
    done: bool
