"""The types of STATE objects: their numbers and their functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ternmq.journal.state.sets import IMMUTABLE, StateKey
from ternmq.model.types import Position

GLOBAL: Final = 1
TOPICS: Final = 2
SUBSCRIPTIONS: Final = 3
QUEUES: Final = 4
SESSIONS: Final = 5
FORGOTTEN: Final = 6
DEDUP: Final = 7
HELD: Final = 8
SHARD: Final = 9
APPS: Final = 10
TRANSACTION: Final = 11
WRITER: Final = 12
PREPARED_ROWS: Final = 13
HOLDS: Final = 20
GONE: Final = 21
"""Types of STATE objects. Numbers are never reused; see ``docs/format/state.md``."""

ALWAYS: Final = 1 << 63
"""``changed`` of an object that every set writes again."""
LOADED: Final = 0
"""``changed`` of an object that has not changed since it was loaded from its chunk."""


class ObjectType(NamedTuple):
    """How objects of a type are loaded and encoded, and which record changed one last."""

    load: Callable[[StateKey, bytes, Position], None]
    encode: Callable[[StateKey], bytes]
    changed: Callable[[StateKey], int]


def always(key: StateKey) -> int:
    """Return the ``changed`` of an object that every set writes again."""
    del key
    return ALWAYS


def never(key: StateKey) -> int:
    """Return the ``changed`` of an object that never changes after it was first written."""
    del key
    return IMMUTABLE
