"""Marks of the journal that an answer waits for."""

from __future__ import annotations

import enum


class Rests(enum.IntEnum):
    """The mark that must have passed an answer's position before the answer leaves."""

    DURABLE = 0
    WRITTEN = 1
    """For sends to a topic of durability ``fast``."""
