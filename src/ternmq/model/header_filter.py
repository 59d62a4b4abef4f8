"""The syntax of header filters: ``region = 'eu' AND amount >= 100``; nothing is every message.

::

    filter = all {OR all}
    all    = one {AND one}
    one    = [NOT] test
    test   = "(" filter ")" | what rest
    rest   = (= | <> | != | < | <= | > | >=) literal
           | [NOT] BETWEEN literal AND literal
           | [NOT] IN "(" literal {"," literal} ")"
           | IS [NOT] NULL
           | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text
    what   = header name (A-Z a-z _ first, then also 0-9 . -), or any name in backticks
           | $tag | $key | $priority | $content_type
    literal = text in single quotes ('' is a quote) | number | TRUE | FALSE

Words of the syntax may be written in small letters. ``filter_tree`` says what a filter means.

Filters are stored in CONFIG records, and a start parses them: a later version may accept more, and
never less.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ternmq.model.errors import InvalidFilter
from ternmq.model.filter_tree import (
    MAX_NUMBER,
    AnyOf,
    Compare,
    Every,
    Missing,
    Node,
    Not,
    Part,
    Property,
    Some,
    Value,
    What,
    number_of,
)
from ternmq.model.printing import quoted

MAX_CHARACTERS: Final = 1024
MAX_TESTS: Final = 64
MAX_DEPTH: Final = 16
MAX_ITEMS: Final = 64
_PROPERTIES: Final = {one.value: one for one in Property}
_WORDS: Final = frozenset({
    "AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "CONTAINS", "STARTSWITH", "ENDSWITH",
    "TRUE", "FALSE",
})  # fmt: skip
_PARTS: Final = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
_SIGNS: Final = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})
_TOKEN: Final = re.compile(
    r"(?P<text>'(?:[^']|'')*')"
    r"|(?P<quoted>`(?:[^`]|``)*`)"
    r"|(?P<property>\$[A-Za-z_]*)"
    r"|(?P<number>[+-]?(?:[0-9]|\.[0-9])(?:[eE][+-][0-9]|[A-Za-z0-9_.])*)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)"
    r"|(?P<sign><>|!=|<=|>=|[=<>(),])"
)
_SPACE: Final = re.compile(r"\s*")


def check_header_filter(expression: str) -> None:
    """Refuse what is no header filter.

    Raises:
        InvalidFilter: with the column of the mistake.
    """
    parse(expression)


def parse(expression: str) -> Node | None:
    """Return the tree of a filter; None if every message passes.

    Raises:
        InvalidFilter: with the column of the mistake.
    """
    if len(expression) > MAX_CHARACTERS:
        raise InvalidFilter(
            f"the filter has {len(expression):,} characters: column {MAX_CHARACTERS + 1:,} is "
            f"beyond the {MAX_CHARACTERS:,} that are allowed"
        )
    if not expression.strip():
        return None
    return _Parser(expression).whole()


def same_header_filter(one: str, other: str) -> bool:
    """Return whether two filters are the same, however spaces and words are written.

    Raises:
        InvalidFilter: As ``parse``.
    """
    # Not the trees: 1, 1.0 and TRUE are equal for Python.
    return one == other or repr(parse(one)) == repr(parse(other))


class _Token(NamedTuple):
    """A piece of a filter.

    Attributes:
        kind: ``word`` (of the syntax, in capitals), ``name`` (of a header), ``property``, ``text``,
            ``number``, ``sign`` or ``end``.
        value: The piece, without its quotes.
        at: Its column, from 1.
    """

    kind: str
    value: str
    at: int

    def is_(self, *values: str) -> bool:
        """Return whether this is one of some words or signs."""
        return self.kind in {"word", "sign"} and self.value in values

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else quoted(self.value)


class _Parser:
    """Reads one filter. Its recursion is bounded by ``MAX_DEPTH``."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = self._read()
        self._next = 0
        self._tests = 0
        self._depth = 0

    def whole(self) -> Node:
        found = self._some()
        if self._now.kind != "end":
            raise self._expected("AND, OR or the end")
        return found

    # -- tokens

    def _read(self) -> list[_Token]:
        text = self._expression
        found: list[_Token] = []
        at = _skip(text, 0)
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._wrong(at + 1, _no_token(text[at]))
            found.append(self._token(match.lastgroup or "", match.group(), at + 1))
            at = _skip(text, match.end())
        found.append(_Token("end", "", len(text) + 1))
        return found

    def _token(self, kind: str, value: str, at: int) -> _Token:
        if kind == "text":
            return _Token("text", value[1:-1].replace("''", "'"), at)
        if kind == "quoted":
            name = value[1:-1].replace("``", "`")
            if not name:
                raise self._wrong(at, "the name of a header is empty")
            return _Token("name", name, at)
        if kind == "name" and value.upper() in _WORDS:
            return _Token("word", value.upper(), at)
        if kind == "property" and value not in _PROPERTIES:
            raise self._wrong(at, f"there is no {value}; there are {', '.join(_PROPERTIES)}")
        return _Token(kind, value, at)

    @property
    def _now(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _takes(self, *values: str) -> bool:
        """Take the next token if it is one of some words or signs."""
        if not self._now.is_(*values):
            return False
        self._next += 1
        return True

    def _need(self, value: str) -> None:
        if not self._takes(value):
            raise self._expected(value)

    # -- errors

    def _wrong(self, at: int, what: What) -> InvalidFilter:
        return InvalidFilter(f"not a filter: {quoted(self._expression, 80)}; column {at}: {what}")

    def _expected(self, what: What) -> InvalidFilter:
        return self._wrong(self._now.at, f"expected {what}, not {self._now}")

    # -- the syntax

    def _some(self) -> Node:
        parts = [self._every()]
        while self._takes("OR"):
            parts.append(self._every())
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _every(self) -> Node:
        parts = [self._one()]
        while self._takes("AND"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _one(self) -> Node:
        return Not(self._test()) if self._takes("NOT") else self._test()

    def _test(self) -> Node:
        token = self._now
        if token.is_("("):
            if self._depth == MAX_DEPTH:
                raise self._wrong(token.at, f"parentheses are nested more than {MAX_DEPTH} deep")
            self._next += 1
            self._depth += 1
            found = self._some()
            self._need(")")
            self._depth -= 1
            return found
        if token.kind not in {"name", "property"}:
            what = "the name of a header, $tag, $key, $priority or $content_type"
            if token.kind == "word":
                what += " (write a header with this name in backticks)"
            raise self._expected(what)
        self._tests += 1
        if self._tests > MAX_TESTS:
            raise self._wrong(token.at, f"more than {MAX_TESTS} tests")
        self._next += 1
        return self._rest(_PROPERTIES[token.value] if token.kind == "property" else token.value)

    def _rest(self, what: What) -> Node:
        if self._takes("IS"):
            negated = self._takes("NOT")
            self._need("NULL")
            return Not(Missing(what)) if negated else Missing(what)
        if self._now.kind == "sign" and self._now.value in _SIGNS:
            return self._comparison(what)
        negated = self._takes("NOT")
        if self._takes("BETWEEN"):
            found = self._between(what)
        elif self._takes("IN"):
            found = self._in(what)
        elif self._now.is_(*_PARTS):
            found = self._part(what)
        elif negated:
            raise self._expected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
        elif self._now.value.upper() in {"LIKE", "MATCHES", "REGEXP", "RLIKE"}:
            raise self._expected("a comparison (there are no patterns: use CONTAINS, STARTSWITH)")
        else:
            raise self._expected(
                "a comparison: =, <>, <, <=, >, >=, BETWEEN, IN, IS NULL, CONTAINS, STARTSWITH or "
                "ENDSWITH"
            )
        return Not(found) if negated else found

    def _comparison(self, what: What) -> Node:
        sign = self._take()
        at = self._now.at
        literal = self._literal(what)
        if isinstance(literal, bool) and sign.value not in {"=", "<>", "!="}:
            raise self._wrong(at, f"TRUE and FALSE have no order: {sign.value} needs another value")
        return Compare(what, "<>" if sign.value == "!=" else sign.value, literal)

    def _between(self, what: What) -> Node:
        at = self._now.at
        low = self._literal(what)
        self._need("AND")
        high_at = self._now.at
        high = self._literal(what)
        if isinstance(low, bool):
            raise self._wrong(at, "TRUE and FALSE have no order: BETWEEN needs other values")
        if isinstance(high, bool) or isinstance(low, str) is not isinstance(high, str):
            raise self._wrong(high_at, "BETWEEN needs two texts or two numbers")
        return Every((Compare(what, ">=", low), Compare(what, "<=", high)))

    def _in(self, what: What) -> Node:
        self._need("(")
        literals = [self._literal(what)]
        while self._takes(","):
            if len(literals) == MAX_ITEMS:
                raise self._wrong(self._now.at, f"more than {MAX_ITEMS} values in IN")
            literals.append(self._literal(what))
        if not self._takes(")"):
            raise self._expected("',' or ')'")
        return AnyOf(what, tuple(literals))

    def _part(self, what: What) -> Node:
        word = self._take()
        if what is Property.PRIORITY:
            raise self._wrong(word.at, f"$priority is a number: it has no {word.value}")
        if self._now.kind != "text":
            raise self._expected(f"a text in single quotes after {word.value}")
        return Part(what, word.value, self._take().value)

    def _literal(self, what: What) -> Value:
        token = self._now
        literal: Value
        if token.kind == "text":
            literal = token.value
        elif token.kind == "number":
            literal = self._number(token)
        elif token.is_("TRUE", "FALSE"):
            literal = token.value == "TRUE"
        elif token.is_("NULL"):
            raise self._expected("a value (a comparison with NULL is never true: use IS NULL)")
        else:
            raise self._expected("a value: a text in single quotes, a number, TRUE or FALSE")
        if what is Property.PRIORITY and isinstance(literal, bool | str):
            raise self._wrong(token.at, "$priority is compared with numbers only")
        self._next += 1
        return literal

    def _number(self, token: _Token) -> int | float:
        if len(token.value) > MAX_NUMBER:
            raise self._wrong(token.at, f"a number has at most {MAX_NUMBER} characters")
        number = number_of(token.value)
        if number is None:
            raise self._wrong(token.at, f"not a number: {quoted(token.value)}")
        return number


def _skip(text: str, at: int) -> int:
    """Return where the white space that begins at a place ends."""
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _no_token(sign: str) -> str:
    """Return what is wrong with a character that begins no token."""
    if sign == "'":
        return "a text without its end: the closing quote is missing"
    if sign == "`":
        return "a name without its end: the closing backtick is missing"
    if sign == '"':
        return "a text is written in single quotes, the name of a header in backticks"
    return f"unexpected {quoted(sign)}"
