"""A secret text, shown as ``***`` in logs, tracebacks and lists of settings."""

from __future__ import annotations

from hmac import compare_digest
from typing import Final, NoReturn

HIDDEN: Final = "***"


class Secret:
    """A secret text. Only ``reveal`` returns it, and its calls are easy to search for.

    It cannot be pickled, and has no length, so that it cannot leak in other ways.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        """Compare in constant time."""
        if not isinstance(other, Secret):
            return NotImplemented
        return compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        raise TypeError("a secret is not pickled")
