"""The tree of a header filter, and its evaluation: for many rows at once, with three values.

A test of a row is true, false or unknown, as in SQL: unknown is what is asked of a header that is
missing, or of a text that is no number if it is compared with a number. NOT of unknown is unknown;
AND is false as soon as one side is false, OR is true as soon as one is true.

Each row has one byte: false is 0, unknown 1, true 3. So AND is ``&`` and OR is ``|`` of all bytes
of a column at once, written as one integer.

Texts are compared by code point. Integers are compared exactly, however large; other numbers as
floats of 64 bits.
"""

from __future__ import annotations

import enum
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol


class Property(enum.Enum):
    """What a filter can test beside headers."""

    TAG = "$tag"
    KEY = "$key"
    PRIORITY = "$priority"
    CONTENT_TYPE = "$content_type"


What = str | Property
"""The name of a header, or a property."""
Value = str | int | float | bool
"""A literal of a filter."""
FALSE: Final = 0
UNKNOWN: Final = 1
TRUE: Final = 3
_NOT: Final = bytes((TRUE, UNKNOWN, 2, FALSE)) + bytes(range(4, 256))
_TRUTHS: Final = {"true": True, "false": False}
MAX_NUMBER: Final = 64
"""Most characters of a number: conversions of longer ones would take a time that a client chooses.
"""
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,64}")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class Rows(Protocol):
    """The rows that a filter is asked about."""

    @property
    def count(self) -> int:
        """Number of rows."""

    def values(self, what: What) -> Sequence[str | int | None]:
        """Return the value of each row; None: it has none."""


@dataclass(frozen=True, slots=True)
class OneRow:
    """A single message, as ``Rows``. Empty texts are missing."""

    headers: Mapping[str, str]
    tag: str = ""
    key: str = ""
    priority: int = 0
    content_type: str = ""
    count: int = 1

    def values(self, what: What) -> Sequence[str | int | None]:
        """Return the value, in a sequence of one."""
        if isinstance(what, str):
            return [self.headers.get(what)]
        if what is Property.PRIORITY:
            return [self.priority]
        if what is Property.TAG:
            return [self.tag or None]
        return [(self.key if what is Property.KEY else self.content_type) or None]


class Node(Protocol):
    """A part of a filter."""

    def column(self, rows: Rows) -> bytes:
        """Return FALSE, UNKNOWN or TRUE for each row."""


def number_of(text: str) -> int | float | None:
    """Return the number that a text is; None: it is none.

    A number has at most 64 characters, and is within the range of a float unless it is an integer.
    """
    if len(text) > MAX_NUMBER:
        return None
    if text.isdigit() and text.isascii():
        return int(text)
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        number = float(text)
        return number if abs(number) != float("inf") else None
    return None


@dataclass(frozen=True, slots=True)
class Every:
    """True if all parts are (AND)."""

    parts: tuple[Node, ...]

    def column(self, rows: Rows) -> bytes:
        """Return the least value of each row."""
        first, *others = self.parts
        found = int.from_bytes(first.column(rows), "little")
        for one in others:
            if not found:
                break  # false for all rows, whatever the others are
            found &= int.from_bytes(one.column(rows), "little")
        return found.to_bytes(rows.count, "little")


@dataclass(frozen=True, slots=True)
class Some:
    """True if one of the parts is (OR)."""

    parts: tuple[Node, ...]

    def column(self, rows: Rows) -> bytes:
        """Return the greatest value of each row."""
        found = 0
        for one in self.parts:
            found |= int.from_bytes(one.column(rows), "little")
        return found.to_bytes(rows.count, "little")


@dataclass(frozen=True, slots=True)
class Not:
    """True if the part is false."""

    part: Node

    def column(self, rows: Rows) -> bytes:
        """Return the opposite of each row; unknown stays unknown."""
        return self.part.column(rows).translate(_NOT)


@dataclass(frozen=True, slots=True)
class Missing:
    """True if a row has no such value (IS NULL); never unknown."""

    what: What

    def column(self, rows: Rows) -> bytes:
        """Return the value of each row."""
        return bytes([TRUE if one is None else FALSE for one in rows.values(self.what)])


class _Answers(dict[str | int | None, int]):
    """The answers to a test, by value: each value of a column is tested once."""

    __slots__ = ("_test",)

    def __init__(self, test: _Test) -> None:
        self._test = test

    def __missing__(self, value: str | int | None) -> int:
        truth = None if value is None else self._test.truth(value)
        self[value] = answer = UNKNOWN if truth is None else TRUE if truth else FALSE
        return answer


class _Test(ABC):
    """A comparison of one value with literals."""

    __slots__ = ()

    what: What

    @abstractmethod
    def truth(self, value: str | int) -> bool | None:
        """Return whether a value passes; None: unknown."""

    def column(self, rows: Rows) -> bytes:
        """Return the value of each row."""
        return bytes(map(_Answers(self).__getitem__, rows.values(self.what)))


@dataclass(frozen=True, slots=True)
class Compare(_Test):
    """A comparison: ``=``, ``<>``, ``<``, ``<=``, ``>`` or ``>=``."""

    what: What
    sign: str
    literal: Value

    def truth(self, value: str | int) -> bool | None:
        """Return whether a value passes; None: it is of another kind than the literal."""
        has = _as_kind(value, self.literal)
        # Both are texts, or both are numbers: the parser orders no truth values.
        return None if has is None else _COMPARISONS[self.sign](has, self.literal)


_COMPARISONS: Final[dict[str, Callable[[Value, Value], bool]]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AnyOf(_Test):
    """True if a value equals one of some literals (IN)."""

    what: What
    literals: tuple[Value, ...]

    def truth(self, value: str | int) -> bool | None:
        """Return whether a value is among the literals; None: no, but some are of another kind."""
        known = True
        for literal in self.literals:
            has = _as_kind(value, literal)
            if has is None:
                known = False
            elif has == literal:
                return True
        return False if known else None


@dataclass(frozen=True, slots=True)
class Part(_Test):
    """A test of a part of a text: CONTAINS, STARTSWITH or ENDSWITH."""

    what: What
    where: str
    text: str

    def truth(self, value: str | int) -> bool | None:
        """Return whether the text is that part of a value."""
        has = str(value)
        if self.where == "CONTAINS":
            return self.text in has
        if self.where == "STARTSWITH":
            return has.startswith(self.text)
        return has.endswith(self.text)


def _as_kind(value: str | int, literal: Value) -> Value | None:
    """Return a value as what a literal is: a text, a number or a truth; None: it is none."""
    kind = type(literal)
    if kind is str:
        return value
    if kind is bool:
        return _TRUTHS.get(value.lower()) if isinstance(value, str) else None
    return number_of(value) if isinstance(value, str) else value


def named(tree: Node) -> frozenset[What]:
    """Return all headers and properties that a filter asks for."""
    if isinstance(tree, Every | Some):
        return frozenset().union(*map(named, tree.parts))
    if isinstance(tree, Not):
        return named(tree.part)
    assert isinstance(tree, Missing | Compare | AnyOf | Part)
    return frozenset({tree.what})


def passes(tree: Node | None, row: Rows) -> bool:
    """Return whether one row passes a filter: whether it is true, not unknown."""
    return tree is None or tree.column(row)[0] == TRUE
