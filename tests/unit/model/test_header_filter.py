"""The syntax of header filters: what is read, what is refused and where, what is the same."""

from __future__ import annotations

import pytest

from ternmq.model.errors import InvalidFilter, InvalidRequest
from ternmq.model.filter_tree import (
    AnyOf,
    Compare,
    Every,
    Missing,
    Node,
    Not,
    OneRow,
    Part,
    Property,
    Some,
    named,
    passes,
)
from ternmq.model.header_filter import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_TESTS,
    check_header_filter,
    parse,
    same_header_filter,
)

A = Compare("a", "=", 1)
B = Compare("b", "=", 2)
C = Compare("c", "=", 3)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1", A),
        ("  a=1\t\n", A),
        ("a != 1", Compare("a", "<>", 1)),
        ("a <> 1", Compare("a", "<>", 1)),
        ("a < -1", Compare("a", "<", -1)),
        ("a<=+1", Compare("a", "<=", 1)),
        ("a > .5", Compare("a", ">", 0.5)),
        ("a >= 1.5e+3", Compare("a", ">=", 1500.0)),
        ("a = 'it''s'", Compare("a", "=", "it's")),
        ("a = ''", Compare("a", "=", "")),
        ("a = 'AND'", Compare("a", "=", "AND")),
        ("a = TRUE", Compare("a", "=", True)),
        ("a <> false", Compare("a", "<>", False)),
        ("x-request.id_2 = 'a'", Compare("x-request.id_2", "=", "a")),
        ("`in` = 1", Compare("in", "=", 1)),
        ("`a ``b`` ü` = 1", Compare("a `b` ü", "=", 1)),
        ("`$tag` = 'x'", Compare("$tag", "=", "x")),
        ("$tag = 'x'", Compare(Property.TAG, "=", "x")),
        ("$key = 'x'", Compare(Property.KEY, "=", "x")),
        ("$priority >= 3", Compare(Property.PRIORITY, ">=", 3)),
        ("$content_type = 'x'", Compare(Property.CONTENT_TYPE, "=", "x")),
        ("a IS NULL", Missing("a")),
        ("a is not null", Not(Missing("a"))),
        ("a IN (1, 'x', TRUE, 2.5)", AnyOf("a", (1, "x", True, 2.5))),
        ("a NOT IN ('x')", Not(AnyOf("a", ("x",)))),
        (
            "a BETWEEN 1 AND 2 AND b = 2",
            Every((Every((Compare("a", ">=", 1), Compare("a", "<=", 2))), B)),
        ),
        (
            "a NOT BETWEEN 'b' AND 'c'",
            Not(Every((Compare("a", ">=", "b"), Compare("a", "<=", "c")))),
        ),
        ("a CONTAINS 'x'", Part("a", "CONTAINS", "x")),
        ("a startswith 'x'", Part("a", "STARTSWITH", "x")),
        ("a NOT ENDSWITH 'x'", Not(Part("a", "ENDSWITH", "x"))),
        ("a = 1 OR b = 2 AND c = 3", Some((A, Every((B, C))))),
        ("(a = 1 OR b = 2) AND c = 3", Every((Some((A, B)), C))),
        ("a = 1 AND b = 2 AND c = 3", Every((A, B, C))),
        ("NOT a = 1 AND b = 2", Every((Not(A), B))),
        ("NOT (a = 1 AND b = 2)", Not(Every((A, B)))),
        ("NOT (NOT a = 1)", Not(Not(A))),
        ("((a = 1))", A),
    ],
)
def test_what_is_read(text: str, tree: Node) -> None:
    assert repr(parse(text)) == repr(tree)


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_no_filter(text: str) -> None:
    assert parse(text) is None
    assert passes(parse(text), OneRow({}))


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("a", 2, "expected a comparison: =.*not the end"),
        ("a = ", 5, "expected a value.*not the end"),
        ("a = b", 5, "expected a value: a text in single quotes.*not 'b'"),
        ("a == 1", 4, "expected a value"),
        ("a = NULL", 5, "use IS NULL"),
        ("a = 12abc", 5, "not a number: '12abc'"),
        ("a = 1.2.3", 5, "not a number"),
        ("a = 1e999", 5, "not a number"),
        ("a = " + "1" * 65, 5, "a number has at most 64 characters"),
        ("a = 'x", 5, "the closing quote is missing"),
        ("`a = 1", 1, "the closing backtick is missing"),
        ("`` = 1", 1, "the name of a header is empty"),
        ('a = "x"', 5, "in single quotes, the name of a header in backticks"),
        ("$tags = 'x'", 1, r"there is no \$tags; there are \$tag, \$key"),
        ("$ = 1", 1, "there is no"),
        ("in = 1", 1, "in backticks"),
        ("1 = a", 1, "expected the name of a header"),
        ("'a' = 1", 1, "expected the name of a header"),
        ("ü = 1", 1, "unexpected 'ü'"),
        ("a = 1;", 6, "unexpected ';'"),
        ("a LIKE 'x%'", 3, "there are no patterns: use CONTAINS"),
        ("a NOT 1", 7, "expected BETWEEN, IN"),
        ("a IS 1", 6, "expected NULL"),
        ("a BETWEEN 1 OR 2", 13, "expected AND"),
        ("a BETWEEN 1 AND 'x'", 17, "two texts or two numbers"),
        ("a BETWEEN 1 AND TRUE", 17, "two texts or two numbers"),
        ("a BETWEEN TRUE AND FALSE", 11, "have no order"),
        ("a > TRUE", 5, "TRUE and FALSE have no order"),
        ("a IN ()", 7, "expected a value"),
        ("a IN 1", 6, r"expected \("),
        ("a IN (1 2)", 9, r"expected ',' or '\)'"),
        ("a CONTAINS 1", 12, "a text in single quotes after CONTAINS"),
        ("$priority = 'x'", 13, "compared with numbers only"),
        ("$priority IN (1, TRUE)", 18, "compared with numbers only"),
        ("$priority CONTAINS '1'", 11, "is a number"),
        ("NOT NOT a = 1", 5, "expected the name of a header"),
        ("(a = 1", 7, r"expected \), not the end"),
        ("a = 1)", 6, "expected AND, OR or the end"),
        ("a = 1 b = 2", 7, "expected AND, OR or the end, not 'b'"),
        ("a = 1 AND", 10, "not the end"),
        ("a = 5-3", 6, "expected AND, OR or the end"),
    ],
)
def test_a_mistake_is_named_with_its_column(text: str, column: int, says: str) -> None:
    with pytest.raises(InvalidFilter, match=rf"column {column}: .*{says}") as caught:
        check_header_filter(text)
    assert isinstance(caught.value, InvalidRequest)
    assert "write it like" in str(caught.value)


def test_the_limits() -> None:
    parse("a = 1".ljust(MAX_CHARACTERS))
    with pytest.raises(InvalidFilter, match="1,025 characters: column 1,025 is beyond"):
        parse("a = 1".ljust(MAX_CHARACTERS + 1))
    parse(" OR ".join(["a=1"] * MAX_TESTS))
    with pytest.raises(InvalidFilter, match="column 449: more than 64 tests"):
        parse(" OR ".join(["a=1"] * (MAX_TESTS + 1)))
    parse("(" * MAX_DEPTH + "a=1" + ")" * MAX_DEPTH)
    parse(" AND ".join(["(" * MAX_DEPTH + "a=1" + ")" * MAX_DEPTH] * 3))
    with pytest.raises(InvalidFilter, match="column 17: parentheses are nested more than 16"):
        parse("(" * (MAX_DEPTH + 1) + "a=1" + ")" * (MAX_DEPTH + 1))
    parse("a IN (" + ",".join(["1"] * MAX_ITEMS) + ")")
    with pytest.raises(InvalidFilter, match="column 135: more than 64 values"):
        parse("a IN (" + ",".join(["1"] * (MAX_ITEMS + 1)) + ")")


@pytest.mark.parametrize("text", ["x" * (1 << 20), "(" * 10_000, "NOT (" * 200, "'" * 1024])
def test_large_and_deep_ones_are_refused(text: str) -> None:
    with pytest.raises(InvalidFilter, match="column"):
        parse(text)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("", "  ", True),
        ("a = 1 AND b = 'x'", "a=1 and `b`='x'", True),
        ("a <> 1", "a != 1", True),
        ("((a = 1))", "a = 1", True),
        ("a = 1", "a = 1.0", False),
        ("a = 1", "a = TRUE", False),
        ("a = 1", "a = '1'", False),
        ("`$tag` = 'x'", "$tag = 'x'", False),
        ("a = 1 AND b = 2", "b = 2 AND a = 1", False),
        ("", "a = 1", False),
    ],
)
def test_the_same_filter_in_other_words(one: str, other: str, same: bool) -> None:
    assert same_header_filter(one, other) is same


def test_what_a_filter_asks_for() -> None:
    tree = parse("NOT (a = 1 OR `b` IS NULL) AND $tag IN ('x') AND c CONTAINS 'y' AND a > 2")
    assert tree is not None
    assert named(tree) == {"a", "b", "c", Property.TAG}
