"""Failed messages in the form of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ternmq.client.content.causes import reason_of
from ternmq.client.forms.messages import plain as plain_message
from ternmq.client.forms.messages import shown
from ternmq.client.forms.values import of_us

if TYPE_CHECKING:
    from ternmq.client.admin.failedmessage import FailedMessage


def said(one: FailedMessage) -> str:
    """Return the last failure's reason: the consumer's, or else the broker's."""
    if not one.failures:
        return ""
    last = one.failures[-1]
    return reason_of(last.reason, last.cause)


def plain(topic: str, group: str, one: FailedMessage) -> dict[str, object]:
    """Return a failed message in the form of the JSON output."""
    return {
        "topic": topic,
        "group": group,
        "queue": one.queue,
        "offset": one.offset,
        "attempts": one.attempts,
        "deliveries": one.deliveries,
        "when": one.when,
        "held": one.held,
        "state": one.state,
        "reason": said(one),
        "failures": [
            {
                "time": of_us(failure.time_us),
                "attempt": failure.attempt,
                "outcome": failure.outcome,
                "cause": failure.cause,
                "reason": failure.reason,
            }
            for failure in one.failures
        ],
        "message": None if one.message is None else plain_message(shown(one.message)),
    }
