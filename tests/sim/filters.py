"""A second evaluator of header filters: read and judged row by row, in the simplest way.

It shares no code with the broker. A tree is nested tuples; a truth is True, False or None: unknown.
Only sound filters are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from random import Random
from typing import Any, Final

from ternmq.record.batch.row import Row

_PIECE: Final = re.compile(
    r"\s*('(?:[^']|'')*'|`(?:[^`]|``)*`|\$\w+|[-+]?\.?\d[\w.]*(?:(?<=[eE])[-+]\d+)?"
    r"|[A-Za-z_][\w.-]*|<>|!=|<=|>=|[(),=<>])\s*"
)
_WORDS: Final = {
    "AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "CONTAINS", "STARTSWITH", "ENDSWITH",
    "TRUE", "FALSE",
}  # fmt: skip
_INTEGER: Final = re.compile(r"[-+]?\d+", re.ASCII)
_DECIMAL: Final = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)

Tree = tuple[Any, ...]


def read(text: str) -> Tree:
    """Return the tree of a filter."""
    pieces = [_word(piece) for piece in _PIECE.findall(text)]
    pieces.reverse()  # the next one is the last
    found = _either(pieces)
    assert not pieces, pieces
    return found


def _word(piece: str) -> str:
    return piece.upper() if piece.upper() in _WORDS else piece


def _either(pieces: list[str]) -> Tree:
    left = _both(pieces)
    while pieces and pieces[-1] == "OR":
        pieces.pop()
        left = ("or", left, _both(pieces))
    return left


def _both(pieces: list[str]) -> Tree:
    left = _denied(pieces)
    while pieces and pieces[-1] == "AND":
        pieces.pop()
        left = ("and", left, _denied(pieces))
    return left


def _denied(pieces: list[str]) -> Tree:
    if pieces[-1] == "NOT":
        pieces.pop()
        return ("not", _test(pieces))
    return _test(pieces)


def _test(pieces: list[str]) -> Tree:
    first = pieces.pop()
    if first == "(":
        found = _either(pieces)
        assert pieces.pop() == ")"
        return found
    what = ("header", first)
    if first[0] == "`":
        what = ("header", first[1:-1].replace("``", "`"))
    elif first[0] == "$":
        what = ("property", first)
    sign = pieces.pop()
    if sign == "IS":
        denied = pieces[-1] == "NOT"
        if denied:
            pieces.pop()
        assert pieces.pop() == "NULL"
        return ("not", ("null", what)) if denied else ("null", what)
    if sign == "NOT":
        return ("not", _rest(what, pieces.pop(), pieces))
    return _rest(what, sign, pieces)


def _rest(what: tuple[str, str], sign: str, pieces: list[str]) -> Tree:
    if sign == "BETWEEN":
        low = _literal(pieces.pop())
        assert pieces.pop() == "AND"
        return ("and", (">=", what, low), ("<=", what, _literal(pieces.pop())))
    if sign == "IN":
        assert pieces.pop() == "("
        found: Tree = ("=", what, _literal(pieces.pop()))
        while pieces.pop() == ",":
            found = ("or", found, ("=", what, _literal(pieces.pop())))
        return found
    return (sign, what, _literal(pieces.pop()))


def _literal(piece: str) -> str | Fraction | bool:
    if piece[0] == "'":
        return piece[1:-1].replace("''", "'")
    if piece in {"TRUE", "FALSE"}:
        return piece == "TRUE"
    number = _number(piece)
    assert number is not None
    return number


def _number(text: str) -> Fraction | None:
    if len(text) > 64:
        return None
    if _INTEGER.fullmatch(text):
        return Fraction(int(text))
    if not _DECIMAL.fullmatch(text) or float(text) in {float("inf"), float("-inf")}:
        return None
    return Fraction(float(text))


def truth(tree: Tree, row: Row) -> bool | None:
    """Return whether a row passes; None: unknown."""
    kind = tree[0]
    if kind == "not":
        inner = truth(tree[1], row)
        return None if inner is None else not inner
    if kind in {"and", "or"}:
        return _joined(kind, [truth(tree[1], row), truth(tree[2], row)])
    value = _value(tree[1], row)
    if kind == "null":
        return value is None
    return None if value is None else _compared(kind, value, tree[2])


def _joined(kind: str, sides: Iterable[bool | None]) -> bool | None:
    decides = kind == "or"  # a true side decides an OR, a false one an AND
    if any(side is decides for side in sides):
        return decides
    return None if any(side is None for side in sides) else not decides


def _value(what: tuple[str, str], row: Row) -> str | int | None:
    kind, name = what
    if kind == "header":
        return row.headers.get(name)
    if name == "$priority":
        return row.priority
    return {"$tag": row.tag, "$key": row.key, "$content_type": row.content_type}[name] or None


def _compared(sign: str, value: Any, literal: Any) -> bool | None:
    if isinstance(literal, bool):
        if value.lower() not in {"true", "false"}:
            return None
        value = value.lower() == "true"
    elif isinstance(literal, Fraction):
        value = _number(str(value))
        if value is None:
            return None
    if sign == "CONTAINS":
        return bool(literal in value)
    if sign == "STARTSWITH":
        return bool(value[: len(literal)] == literal)
    if sign == "ENDSWITH":
        return bool(literal == "" or value[-len(literal) :] == literal)
    order = int(value > literal) - int(value < literal)
    return {
        "=": order == 0, "<>": order != 0, "!=": order != 0, "<": order < 0, "<=": order <= 0,
        ">": order > 0, ">=": order >= 0,
    }[sign]  # fmt: skip


# ------------------------------------------------------------------------------- filters and rows

_NAMES: Final = ("a", "b", "n.1", "n.1", "`x y`")
_NUMBERED: Final = "n.1"
"""The header that holds numbers only."""
_TEXTS: Final = ("", "eu", "us", "10", "9", "it's", "é", "true")
_NUMBERS: Final = (
    "0", "9", "10", "-3", "2.5", "1e1", "9007199254740992", "9007199254740993", "9007199254740994",
    "123456789012345678901",
)  # fmt: skip


def made(chance: Random, depth: int = 3) -> str:
    """Return a filter by chance."""
    draw = chance.random()
    if depth and draw < 0.5:
        word = chance.choice((" AND ", " or ", " OR "))
        inner = f"({made(chance, depth - 1)}){word}{made(chance, depth - 1)}"
        return f"NOT ({inner})" if chance.random() < 0.3 else inner
    return _made_test(chance)


def _made_test(chance: Random) -> str:
    what = chance.choice((*_NAMES, *_NAMES, "$tag", "$key", "$content_type"))
    denied = chance.choice(("", "", "NOT "))
    some = _NUMBERS if what == _NUMBERED else chance.choice((_TEXTS, _NUMBERS))
    one, other = (_shown(chance.choice(some), some) for _ in range(2))
    part = _shown(chance.choice(_TEXTS), _TEXTS)
    return chance.choice((
        f"{what} {chance.choice(('=', '<>', '!=', '<', '<=', '>', '>='))} {one}",
        f"{what} {denied}between {one} AND {other}",
        f"{what} {denied}IN ({one}, 'z', {other}, 7)",
        f"{what} IS {denied}NULL",
        f"{what} = {chance.choice(('TRUE', 'false'))}",
        f"{what} {denied}{chance.choice(('CONTAINS', 'startswith', 'ENDSWITH'))} {part}",
        f"$priority {denied}IN (0, {chance.randrange(4)})",
        f"NOT {what} >= {one}",
    ))  # fmt: skip


def _shown(value: str, some: tuple[str, ...]) -> str:
    return value if some is _NUMBERS else "'" + value.replace("'", "''") + "'"


def made_headers(chance: Random) -> dict[str, str]:
    """Return headers by chance: some missing, some numbers, some none."""
    names = dict.fromkeys(name.strip("`") for name in _NAMES)
    values = (*_TEXTS, *_NUMBERS, "TRUE", "abc", "1.", "-0", "1e999", "0x1", " 9", "9" * 65)
    return {
        name: chance.choice(_NUMBERS if name == _NUMBERED else values)
        for name in names
        if chance.random() < 0.7
    }
