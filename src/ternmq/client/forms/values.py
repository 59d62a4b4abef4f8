"""Values in the form of JSON: times in UTC, durations in seconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any


def iso(moment: datetime | None) -> str | None:
    """Return a time in UTC, with milliseconds."""
    if moment is None:
        return None
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def of_us(time_us: int) -> datetime:
    """Return the time of a broker's timestamp."""
    return datetime.fromtimestamp(time_us / 1e6, UTC)


def plain(value: Any) -> Any:
    """Convert a value for JSON: times in UTC, durations in seconds."""
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value
