"""Control: alarms, which tell an operator what needs a person."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ternmq.wire.control.coding import Body, Line
from ternmq.wire.control.times import at, datetime

Subject = Annotated[str, Meta(max_length=400, pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")]


class AlarmInfo(Body, frozen=True, kw_only=True):
    """An open alarm."""

    name: str
    """What it is about: `clock`, `dead-letters`, `expired-dropped`, `held`, `due-unreadable`,
    `due-no-room`, `no-checker`, `owner-idle`, `queue-unowned`, `transaction-parked`; of a broker
    group: `one-copy`, `copy-behind`, `coordinator`, `read-only`; other versions have others."""
    subject: str = ""
    """What it concerns: a topic, or topic/group/queue. Empty: the broker."""
    text: str = ""
    """What happened, when it was raised."""
    since_us: int = 0
    """When it was raised."""

    @property
    def since(self) -> datetime:
        """When it was raised."""
        return at(self.since_us)


class AlarmList(Body, frozen=True, kw_only=True):
    """List the open alarms, those raised first in front."""


class Alarms(Body, frozen=True, kw_only=True):
    """Open alarms, at most 1,000."""

    alarms: list[AlarmInfo]
    now_us: int = 0
    """Broker time."""


class AlarmClear(Body, frozen=True, kw_only=True):
    """Clear an alarm. While its reason lasts, the broker raises it again within a second or two."""

    name: Line
    subject: Subject = ""


class AlarmCleared(Body, frozen=True, kw_only=True):
    """Whether it was open."""

    cleared: bool
