"""Numbers that must not be mixed up, as types that the checker tells apart.

All times in TernMQ are integers of **microseconds** since the Unix epoch, in broker time unless a
name says otherwise; variables holding one end in ``_us``.
"""

from __future__ import annotations

from typing import Final, NewType

Position = NewType("Position", int)
"""A byte address in the journal."""

Offset = NewType("Offset", int)
"""A message's place in its queue: 0, 1, 2 ..., dense, never reused."""

Epoch = NewType("Epoch", int)
"""A reign of a broker over its journal; grows by one at every start."""

NO_POSITION: Final = Position(2**64 - 1)
"""Stands in records where a position would, when there is none."""

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US
