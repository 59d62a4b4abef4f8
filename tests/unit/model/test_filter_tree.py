"""What a header filter means: three values, texts and numbers, many rows at once."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from ternmq.model.filter_tree import (
    FALSE,
    TRUE,
    UNKNOWN,
    OneRow,
    Property,
    What,
    number_of,
)
from ternmq.model.header_filter import parse
from ternmq.record.batch.row import Row
from tests.sim import filters

TRUTHS = {TRUE: True, UNKNOWN: None, FALSE: False}


class Several:
    """Some messages."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.count = len(rows)

    def values(self, what: What) -> Sequence[str | int | None]:
        return [value for row in self.rows for value in one(row).values(what)]


def one(row: Row) -> OneRow:
    return OneRow(row.headers, row.tag, row.key, row.priority, row.content_type)


def truth(text: str, **headers: str) -> bool | None:
    tree = parse(text)
    assert tree is not None
    return TRUTHS[tree.column(OneRow(headers))[0]]


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("a = 'x'", "x", True),
        ("a = 'x'", "X", False),
        ("a <> 'x'", "y", True),
        ("a < 'b'", "a", True),
        ("a < '10'", "9", False),  # texts
        ("a < 10", "9", True),  # numbers
        ("a = 1", "1.0", True),
        ("a = 1", "+1", True),
        ("a = 1", "x", None),
        ("a <> 1", "x", None),
        ("a <> 1", "", None),
        ("a = 1", " 1", None),
        ("a = 1", "0x1", None),
        ("a = 1", "\u0661", None),  # a digit, but not one of 0 to 9
        ("a = 1000000", "1_000_000", None),
        ("a > 1", "nan", None),
        ("a > 1", "inf", None),
        ("a > 1", "1e999", None),
        ("a > 1", "9" * 64, True),
        ("a > 1", "9" * 65, None),
        ("a = 9007199254740993", "9007199254740993", True),
        ("a = 9007199254740993", "9007199254740992", False),
        ("a > 123456789012345678901", "123456789012345678902", True),
        ("a = TRUE", "True", True),
        ("a = TRUE", "false", False),
        ("a <> TRUE", "false", True),
        ("a = TRUE", "1", None),
        ("a BETWEEN 1 AND 3", "3", True),
        ("a BETWEEN 1 AND 3", "3.5", False),
        ("a NOT BETWEEN 1 AND 3", "0", True),
        ("a BETWEEN 1 AND 3", "x", None),
        ("a IN (1, 'x')", "x", True),
        ("a IN (1, 'x')", "y", None),
        ("a IN ('y', 'x')", "z", False),
        ("a NOT IN (1, 'x')", "y", None),
        ("a NOT IN (1, 2)", "3", True),
        ("a IS NULL", "", False),
        ("a IS NOT NULL", "", True),
        ("a CONTAINS 'ell'", "hello", True),
        ("a CONTAINS ''", "", True),
        ("a STARTSWITH 'he'", "hello", True),
        ("a ENDSWITH 'lo'", "hello", True),
        ("a NOT ENDSWITH 'lo'", "hello", False),
    ],
)
def test_a_value(text: str, value: str, expected: bool | None) -> None:
    assert truth(text, a=value) is expected


@pytest.mark.parametrize(
    "text",
    [
        "a = 'x'", "a <> 'x'", "NOT a = 'x'", "a < 1", "a = TRUE", "a BETWEEN 1 AND 2",
        "a NOT BETWEEN 1 AND 2", "a IN (1)", "a NOT IN (1)", "a CONTAINS ''", "a NOT CONTAINS 'x'",
        "a = 1 AND a <> 1", "a = 1 OR a <> 1",
    ],
)  # fmt: skip
def test_what_is_asked_of_a_missing_header_is_unknown(text: str) -> None:
    assert truth(text) is None


def test_missing_itself_is_never_unknown() -> None:
    assert truth("a IS NULL") is True
    assert truth("a IS NOT NULL") is False
    assert truth("NOT a IS NULL") is False


VALUES = {"b = 'y'": True, "b = 'n'": False, "z = 1": None}


@pytest.mark.parametrize("left", VALUES)
@pytest.mark.parametrize("right", VALUES)
def test_the_tables_of_and_or_not(left: str, right: str) -> None:
    one, other = VALUES[left], VALUES[right]
    both = False if False in {one, other} else None if None in {one, other} else True
    either = True if True in {one, other} else None if None in {one, other} else False
    assert truth(f"{left} AND {right}", b="y") is both
    assert truth(f"{left} OR {right}", b="y") is either
    assert truth(f"NOT {left}", b="y") is (None if one is None else not one)


def test_properties() -> None:
    row = OneRow({"$tag": "h"}, "t", "k", 3, "text/plain")
    for text, expected in (
        ("$tag = 't'", True), ("`$tag` = 'h'", True), ("$key STARTSWITH 'k'", True),
        ("$priority BETWEEN 3 AND 4", True), ("$priority IN (1, 2)", False),
        ("$content_type = 'text/plain'", True),
    ):  # fmt: skip
        tree = parse(text)
        assert tree is not None
        assert TRUTHS[tree.column(row)[0]] is expected, text
    for what in (Property.TAG, Property.KEY, Property.CONTENT_TYPE):
        tree = parse(f"{what.value} IS NULL")
        assert tree is not None
        assert TRUTHS[tree.column(OneRow({}))[0]] is True


def test_numbers() -> None:
    assert number_of("1") == 1
    assert isinstance(number_of("1"), int)
    assert isinstance(number_of("1."), float)
    assert [number_of(text) for text in ("", "-", ".", "1e", "e1", "--1", "1 ")] == [None] * 7


@pytest.mark.parametrize("seed", range(300))
def test_many_rows_at_once_against_the_second_evaluator(seed: int) -> None:
    chance = random.Random(seed)
    text = filters.made(chance, depth=4)
    rows = [
        Row(
            b"",
            headers=filters.made_headers(chance),
            tag=chance.choice(["", "eu", "10"]),
            key=chance.choice(["", "10", "k"]),
            content_type=chance.choice(["", "it's"]),
            priority=chance.randrange(5),
        )
        for _ in range(chance.randint(1, 20))
    ]
    tree = parse(text)
    assert tree is not None
    found = tree.column(Several(rows))
    expected = [filters.truth(filters.read(text), row) for row in rows]
    assert [TRUTHS[value] for value in found] == expected, text
    assert [TRUTHS[tree.column(one(row))[0]] for row in rows] == expected
