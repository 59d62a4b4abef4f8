"""The syntax of tag filters: ``paid || refunded``; ``*`` or an empty text is every message."""

from __future__ import annotations

from typing import Final

from ternmq.model.errors import InvalidRequest
from ternmq.model.printing import quoted

MAX_TAGS: Final = 64
MAX_CHARACTERS: Final = 4096
"""Of a newly stated filter: clients send no longer tags."""


def check_filter(expression: str) -> None:
    """Refuse a filter that is invalid or that no message could pass.

    For newly stated filters. Those of existing groups are only parsed: earlier versions took
    ``a|b`` for one tag.

    Raises:
        InvalidRequest: with an example of a valid filter.
    """
    if len(expression) > MAX_CHARACTERS:
        raise InvalidRequest(
            f"tags has {len(expression)} characters, at most {MAX_CHARACTERS} are allowed"
        )
    for tag in sorted(tags_of(expression) or ()):
        if "*" in tag:
            raise InvalidRequest(
                f"not a tag filter: {quoted(expression, 80)}; '*' alone means every "
                "message; a tag cannot contain it, because filters have no patterns"
            )
        if "|" in tag or "," in tag:
            raise InvalidRequest(
                f"not a tag filter: {quoted(expression, 80)}; alternatives are separated by '||', "
                "as in 'paid || refunded'"
            )


def tags_of(expression: str) -> frozenset[str] | None:
    """Return the tags of a filter; None if every message passes.

    Raises:
        InvalidRequest: an empty alternative, too many tags, or white space within a tag.
    """
    text = expression.strip()
    if text in {"", "*"}:
        return None
    tags = [part.strip() for part in text.split("||")]
    if len(tags) > MAX_TAGS:
        raise InvalidRequest(f"a tag filter has at most {MAX_TAGS} tags, not {len(tags)}")
    if any(not tag or len(tag.split()) != 1 for tag in tags):
        raise InvalidRequest(
            f"not a tag filter: {quoted(expression, 80)}; write it like 'paid || refunded'"
        )
    return frozenset(tags)


def same_filter(one: str, other: str) -> bool:
    """Return whether two filters let the same messages pass, however they are written.

    Raises:
        InvalidRequest: As ``tags_of``.
    """
    return one == other or tags_of(one) == tags_of(other)
