"""Errors of a database in a thread that goes on."""

from __future__ import annotations

import logging
from typing import Final

from ternmq.model.errors import DatabaseNotPrepared, TernMQError
from ternmq.reliable.database.port import Database

log: Final = logging.getLogger("ternmq.reliable")

PAUSES_S: Final = (0.5, 30.0)
"""First and longest pause after an error."""


class Trouble:
    """Errors one after the other: each text is logged once, with longer and longer pauses.

    Args:
        database: Where they come from.
        who: Who meets them, for the log: ``task 'report'``.
    """

    def __init__(self, database: Database, who: str) -> None:
        self._database = database
        self._who = who
        self._pause = 0.0
        self._text = ""

    def at(self, error: Exception) -> float:
        """Log an error unless it was logged; return how long to pause, in seconds.

        One that is neither the database's nor of this package is logged with its traceback.
        """
        first, longest = PAUSES_S
        self._pause = min(longest, self._pause * 2 or first)
        database = self._database
        if database.is_unprepared(error):
            error = DatabaseNotPrepared(f"{database.name} lacks the tables, or a column of them")
            error.hint = database.making or error.hint
        told = isinstance(error, database.errors)
        # The text of a library's error may contain bodies of messages.
        text = database.reason(error) if told else f"{type(error).__name__}: {error}"
        if text != self._text:
            self._text = text
            known = told or isinstance(error, TernMQError)
            log.error(
                "%s at %s cannot work: %s; it tries again", self._who, database.name, text,
                exc_info=None if known else error,
            )  # fmt: skip
        return self._pause

    def over(self) -> None:
        """Note that the database works again."""
        if self._text:
            log.warning("%s at %s works again", self._who, self._database.name)
        self._pause, self._text = 0.0, ""
