"""Numbers with the words that go with them, for people."""

from __future__ import annotations

from collections.abc import Iterable


def counted(count: int, what: str) -> str:
    """Return a number of things, such as ``1 message`` or ``2,000 messages``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def verb(count: int, one: str, many: str) -> str:
    """Return the form of a verb that goes with so many: ``is`` or ``are``."""
    return one if count == 1 else many


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the one of the known names that is most like this one, if any is like it."""
    from difflib import get_close_matches  # for a wrong name only

    found = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def article(name: str) -> str:
    """Return a name with its article: ``a str``, ``an int``, ``a UUID``."""
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"
