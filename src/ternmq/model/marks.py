"""Marks of the journal that an answer waits for."""

from __future__ import annotations

import enum

from ternmq.model.specs import Durability


class Rests(enum.IntEnum):
    """The mark that must have passed an answer's position before the answer leaves."""

    DURABLE = 0
    WRITTEN = 1
    """For sends to a topic of durability ``fast``."""
    STRICT = 2
    """For sends to a topic of durability ``strict``: the commit mark while two copies are sure, or
    as many as the setting ``copies`` of the broker group needs, if that is more."""
    COPIES = 3
    """For sends to a topic of durability ``normal`` while that setting is more than 1: the commit
    mark while so many copies are sure."""


def rests_of(durability: Durability) -> Rests:
    """Return the mark that the answer to a send waits for, by the durability of the topic."""
    if durability is Durability.FAST:
        return Rests.WRITTEN
    return Rests.STRICT if durability is Durability.STRICT else Rests.DURABLE
