"""The decision about a transaction."""

from __future__ import annotations

import enum


class Decision(enum.Enum):
    """The decision about a transaction: the answer of a checker, or an outcome that was asked for.

    Attributes:
        COMMIT: Its messages are delivered, its settles and offsets count.
        ROLLBACK: None of it happens.
        UNKNOWN: It is not decided (yet).
    """

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
