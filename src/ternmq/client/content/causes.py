"""Reasons of failures for which no consumer gave one.

``delivery.last_reason``, the failures of ``client.deadletters``, and the command ``ternmq`` use the
same words; ``docs/format/records.md`` has all causes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from ternmq.record.fact.facts import Cause
from ternmq.wire.control import FailureInfo

UNSAID: Final[dict[int, str]] = {
    Cause.TIME: "the lease ended",
    Cause.SESSION: "the consumer was gone",
    Cause.EXPIRED: "expired",
}
"""By cause. The other causes have only the reason that the consumer gave."""

UNSAID_BY_NAME: Final = {Cause(cause).name.lower(): text for cause, text in UNSAID.items()}


def reason_of(reason: str, cause: str) -> str:
    """Return why an attempt failed, for people.

    Args:
        reason: The reason that the consumer gave; "" without one.
        cause: As in ``FailureInfo``; it is returned if there are no better words.
    """
    return reason or UNSAID_BY_NAME.get(cause, cause)


def in_words(failures: Sequence[FailureInfo]) -> list[FailureInfo]:
    """Return failures of the broker, with words in place of missing reasons."""
    return [
        one if one.reason or one.cause not in UNSAID_BY_NAME
        else replace(one, reason=UNSAID_BY_NAME[one.cause])
        for one in failures
    ]  # fmt: skip
