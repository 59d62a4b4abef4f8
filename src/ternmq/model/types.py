"""Numbers that must not be mixed up, as distinct types for the type checker.

All times in TernMQ are integers of **microseconds** since the Unix epoch, in broker time unless a
name says otherwise; variables holding one end in ``_us``.
"""

from __future__ import annotations

from typing import Final, NewType

Position = NewType("Position", int)
"""A byte address in the journal."""

Offset = NewType("Offset", int)
"""The number of a message in its queue: 0, 1, 2 ..., without gaps, never reused."""

Epoch = NewType("Epoch", int)
"""The number of a reign (from one start of a broker to the next); higher after each start."""

NO_POSITION: Final = Position(2**64 - 1)
"""Value of a record's position field if there is no position."""

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US
