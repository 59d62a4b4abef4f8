"""A record of the journal as the decoders of facts get it, and the rows that they return."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

_SIGN: Final = 2**63


class Record(NamedTuple):
    """The parts of a journal record that events need."""

    position: int
    kind: int
    epoch: int
    time_us: int
    body: bytes


Events = Iterator[tuple[str, Mapping[str, Any]]]
"""Rows: the kind of event, and its columns."""


def signed(number: int) -> int:
    """Return the i64 with the bits of a u64: Spark has no unsigned numbers."""
    return number - 2 * _SIGN if number >= _SIGN else number


def as_json(value: object) -> str:
    """Return a value as the column ``detail`` has it."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=repr)
