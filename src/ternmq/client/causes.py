"""What is said of a failure of which no consumer said anything.

The same words stand in ``delivery.last_reason``, in the failures of ``client.deadletters``, and in
what the command ``ternmq`` shows; ``docs/format/records.md`` has all causes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from ternmq.record.facts import Cause
from ternmq.wire.control import FailureInfo

UNSAID: Final[dict[int, str]] = {
    Cause.TIME: "the lease ended",
    Cause.SESSION: "the consumer was gone",
}
"""By cause; of others nothing is said but what the consumer did."""

UNSAID_BY_NAME: Final = {Cause(cause).name.lower(): text for cause, text in UNSAID.items()}


def reason_of(reason: str, cause: str) -> str:
    """Return why an attempt failed, for people.

    Args:
        reason: What the consumer said; "" if it said nothing.
        cause: As ``FailureInfo`` has it; stands for itself where there are no better words.
    """
    return reason or UNSAID_BY_NAME.get(cause, cause)


def in_words(failures: Sequence[FailureInfo]) -> list[FailureInfo]:
    """Return failures as the broker sent them, with words where no consumer said anything."""
    return [
        one if one.reason or one.cause not in UNSAID_BY_NAME
        else replace(one, reason=UNSAID_BY_NAME[one.cause])
        for one in failures
    ]  # fmt: skip
