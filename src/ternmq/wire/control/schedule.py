"""Control: scheduled messages: cancelling them, listing them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ternmq.wire.control.coding import Body, Limit, Line, Text, Time, Token
from ternmq.wire.control.times import at, datetime

MAX_HOURS = 1000
"""Most hours of a page."""


class ScheduleCancel(Body, frozen=True, kw_only=True):
    """Cancel a scheduled message: exactly one of `id`, `application_id`.

    A message that is cancelled already stays cancelled.
    """

    topic: str
    id: Line | None = None
    """``producer:sequence``, both hexadecimal, as in receipts."""
    application_id: Text | None = None
    """The identifier that the producer gave: the newest message with it is cancelled."""


class ScheduleList(Body, frozen=True, kw_only=True):
    """List the scheduled messages of a topic, in the order in which they were sent."""

    topic: str
    since_us: Time = 0
    """Only messages that are due at or after this time."""
    until_us: Time = 2**63 - 1
    """Only messages that are due before this time."""
    limit: Limit = 100
    after: Token = ""
    """``next`` of the page before."""


class ScheduledInfo(Body, frozen=True, kw_only=True):
    """A scheduled message, without its body."""

    id: str
    """``producer:sequence``, both hexadecimal, as in receipts."""
    due_us: int
    """Time at which it is due."""
    stored_us: int
    """Broker time at which it was stored."""
    application_id: str = ""
    """The identifier that the producer gave."""
    key: str = ""
    ordering_key: str = ""
    queue: int | None = None
    """The queue that was asked for."""

    @property
    def due_at(self) -> datetime:
        """When it is due."""
        return at(self.due_us)

    @property
    def stored_at(self) -> datetime:
        """When the broker stored it."""
        return at(self.stored_us)


class ScheduledPage(Body, frozen=True, kw_only=True):
    """Scheduled messages, in the order in which they were sent; ``next`` is empty on the last page.

    A page may have fewer messages than ``limit``, or none, although others follow.
    """

    messages: list[ScheduledInfo]
    next: str = ""


class ScheduleHours(Body, frozen=True, kw_only=True):
    """Return how many messages of a topic are due in each hour; hours without any are left out."""

    topic: str
    limit: Annotated[int, Meta(ge=1, le=MAX_HOURS)] = MAX_HOURS
    after: Token = ""
    """``next`` of the page before."""


class ScheduledHour(Body, frozen=True, kw_only=True):
    """Messages that are due in one hour."""

    hour_us: int
    """Time at which the hour begins."""
    messages: int
    """Number of messages that are due in it."""

    @property
    def hour(self) -> datetime:
        """When the hour begins."""
        return at(self.hour_us)


class ScheduledHours(Body, frozen=True, kw_only=True):
    """Hours, the earliest first; ``next`` is empty on the last page."""

    hours: list[ScheduledHour]
    next: str = ""
