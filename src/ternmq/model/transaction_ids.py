"""Ids of transactions with check-back, as people read and write them."""

from __future__ import annotations

import re
from typing import Final

from ternmq.model.errors import InvalidRequest

_ID: Final = re.compile(r"t-([0-9a-f]{1,16})\Z")


def transaction_id(number: int) -> str:
    """Return the id of a transaction, such as ``t-1f3``."""
    return f"t-{number:x}"


def transaction_number(id_: object) -> int:
    """Return the number of the transaction that an id names.

    Raises:
        InvalidRequest: It is no such id.
    """
    found = _ID.match(id_) if isinstance(id_, str) else None
    if found is None:
        shown = f"{id_!r:.80}" if isinstance(id_, str) else f"of type {type(id_).__name__}"
        raise InvalidRequest(f"the id of a transaction looks like 't-1f3'; this one is {shown}")
    return int(found[1], 16)
