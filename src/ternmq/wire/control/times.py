"""Times of control structs as ``datetime`` and ``timedelta``.

The only module of the core and of what it imports that may import ``datetime``, but for a field of
receipts (`model.outcomes`): it computes, and reads no clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["at", "datetime", "span", "timedelta"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def at(time_us: int) -> datetime:
    """Return a broker time as a ``datetime`` in UTC."""
    return _EPOCH + timedelta(microseconds=time_us)


def span(duration_us: int) -> timedelta:
    """Return a duration as a ``timedelta``."""
    return timedelta(microseconds=duration_us)
