"""What is said of a failure of which no consumer said anything.

The same words stand in ``delivery.last_reason`` and in what the command ``ternmq`` shows;
``docs/format/records.md`` has all causes.
"""

from __future__ import annotations

from typing import Final

from ternmq.record.facts import Cause

UNSAID: Final[dict[int, str]] = {
    Cause.TIME: "the lease ended",
    Cause.SESSION: "the consumer was gone",
}
"""By cause; of others nothing is said but what the consumer did."""

_BY_NAME: Final = {Cause(cause).name.lower(): text for cause, text in UNSAID.items()}


def reason_of(reason: str, cause: str) -> str:
    """Return why an attempt failed, for people.

    Args:
        reason: What the consumer said; "" if it said nothing.
        cause: As ``FailureInfo`` has it; stands for itself where there are no better words.
    """
    return reason or _BY_NAME.get(cause, cause)
