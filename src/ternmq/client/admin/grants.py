"""Grants of an app as they are written: ``produce:orders``, ``consume:stock:orders-service``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ternmq.model.errors import InvalidRequest
from ternmq.model.printing import quoted
from ternmq.model.specs import BROADCAST_GROUP
from ternmq.wire.commands import Right
from ternmq.wire.control import GrantInfo

_RIGHTS: Final = [one.value for one in Right]
_PATTERN: Final = re.compile(r"(?:[A-Za-z0-9._-]{1,127}|[A-Za-z0-9._-]{0,126}\*)\Z")
"""The same as the broker's: what it would refuse is refused before anything is asked."""


def grants_of(written: object) -> list[GrantInfo]:
    """Return grants from a list of them, each as ``grant_of`` takes it.

    Raises:
        InvalidRequest: It is not a list of grants.
    """
    if not isinstance(written, Iterable) or isinstance(written, str | bytes):
        kind = type(written).__name__
        raise InvalidRequest(f"grants are a list, such as ['produce:orders'], not {kind}")
    return [grant_of(one) for one in written]


def grant_of(written: object) -> GrantInfo:
    """Return a grant from its text; a ``GrantInfo`` is returned as it is.

    Raises:
        InvalidRequest: The text is not a grant; the error shows the form.
    """
    if isinstance(written, GrantInfo):
        return written
    if not isinstance(written, str):
        kind = type(written).__name__
        raise InvalidRequest(
            f"grants are ternmq.GrantInfo, or text such as 'produce:orders', not {kind}"
        )
    shown = quoted(written, 80)
    right, *names = written.split(":")
    if right == Right.PRODUCE.value and len(names) == 2 and all(names):
        raise InvalidRequest(
            f"{shown} names a group, but a producer sends to a topic: write {right}:{names[0]}"
        )
    if right in _RIGHTS and 1 <= len(names) <= 2 and all(names):
        for name in names:
            if name == BROADCAST_GROUP and name is not names[0]:
                continue
            if _PATTERN.match(name) is None:
                raise InvalidRequest(
                    f"{quoted(name)} is neither a name nor a prefix that ends in *"
                )
        if right == Right.AUDIT.value and {*names} != {"*"}:
            raise InvalidRequest(
                f"{shown}: the right to audit covers the whole journal: write {right}:*"
            )
        return GrantInfo(right=right, topic=names[0], group=names[1] if len(names) == 2 else "*")
    form = f"{shown} is not RIGHT:TOPIC or RIGHT:TOPIC:GROUP, RIGHT one of {', '.join(_RIGHTS)}"
    if right in _RIGHTS:
        raise InvalidRequest(f"{form}; for every topic write '{right}:*'")
    from difflib import get_close_matches  # for a wrong name only

    like = get_close_matches(right, _RIGHTS, n=1, cutoff=0.6)
    raise InvalidRequest(form + (f"; did you mean {like[0]}?" if like else ""))
