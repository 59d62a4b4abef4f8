"""Grammar of texts for users: plurals, verbs, articles, similar names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ternmq.model.types import DAY_US, HOUR_US, MINUTE_US, SECOND_US

_UNITS: Final = (
    (365 * DAY_US, "year"),
    (DAY_US, "day"),
    (HOUR_US, "hour"),
    (MINUTE_US, "minute"),
    (SECOND_US, "second"),
)


def counted(count: int, what: str) -> str:
    """Return a number with its noun, such as ``1 message`` or ``2,000 messages``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def lasting(us: int) -> str:
    """Return a duration in its largest unit, rounded down, such as ``3 days`` or ``1 second``."""
    for worth, unit in _UNITS:
        if us >= worth:
            return counted(us // worth, unit)
    return f"{us / SECOND_US:.3g} seconds"


def verb(count: int, one: str, many: str) -> str:
    """Return the form of a verb for a number: ``is`` or ``are``."""
    return one if count == 1 else many


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to ``name``; None if none is similar."""
    from difflib import get_close_matches  # for a wrong name only

    found = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def article(name: str) -> str:
    """Return a name with its article: ``a str``, ``an int``, ``a UUID``."""
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"
