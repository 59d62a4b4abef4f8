"""Errors that do not keep what their callers hold.

An error refers by its traceback to every frame that it passed, and so to the variables of the
callers. A frame that refers back to the error makes a cycle, which lives until the garbage
collector runs: in an idle process that is never. The callers' deliveries would live as long, and
the client extends the lease of a message whose delivery lives: nobody else would get the message.

So no frame of the client keeps an error that it caught or that passes it, nor a future that has
one, not even if it returns normally: it raises a copy (``own``), or deletes the variable. No log
record refers to a delivery either: a handler of the log may keep it.
``tests/black_box/test_errors_keep_nothing.py`` tries it.
"""

from __future__ import annotations

import copy
from typing import TypeVar

from ternmq.model.errors import TernMQError

E = TypeVar("E", bound=BaseException)
"""The class of an error."""


def own(error: E) -> E:
    """Return a copy of an error, with a traceback of its own; of another library's, the error."""
    if not isinstance(error, TernMQError):
        return error
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied
