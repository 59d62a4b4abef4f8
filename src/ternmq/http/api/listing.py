"""Pages of lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ternmq.http.api.call import WHOLE, Answer, Parameter
from ternmq.model.errors import InvalidRequest

MOST: Final = 200
USUAL: Final = 50
LIMIT: Final = Parameter("limit", WHOLE, f"Most of them, at most {MOST}; by default {USUAL}.")


def page(items: Sequence[dict[str, Any]], given: Mapping[str, Any], name: str) -> Answer:
    """Return a page of items by their names.

    Args:
        items: All of them.
        given: Values of the parameters ``q``, ``after`` and ``limit``.
        name: The field that holds the name of an item.

    Raises:
        InvalidRequest: The limit is out of its range.
    """
    limit = given.get("limit", USUAL)
    if not 1 <= limit <= MOST:
        raise InvalidRequest(f"limit is 1 to {MOST}, not {limit:,}")
    part, after = given.get("q", ""), given.get("after", "")
    fitting = sorted(
        (one for one in items if part in str(one[name]) and str(one[name]) > after),
        key=lambda one: str(one[name]),
    )
    found = fitting[:limit]
    following = str(found[-1][name]) if len(fitting) > limit else None
    return Answer({"items": found, "next": following})
