"""Filters by tag against plain sets (masks may say yes by accident, the text never does), and by
headers against a second evaluator."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.catalog.filter import (
    HEADER_COST,
    MAX_TAGS,
    GroupFilter,
    Judged,
    TagFilter,
    check,
    filter_of,
    mask_of,
    parse,
)
from ternmq.model.errors import InvalidFilter, InvalidRequest
from ternmq.model.specs import SubscriptionSpec
from ternmq.record.batch import columns
from ternmq.record.batch.batch import Batch, Row, encode
from tests.sim import filters

tags = st.sampled_from(["", "a", "b", "ü", "paid", "refunded"])


def colliding() -> tuple[str, str]:
    """Two tags with one bit."""
    seen: dict[int, str] = {}
    for number in range(1000):
        tag = f"tag-{number}"
        mask = mask_of([tag])
        if mask in seen:
            return seen[mask], tag
        seen[mask] = tag
    raise AssertionError


def batch_of(some: list[str]) -> Batch:
    rows = [Row(body=b"", tag=tag) for tag in some]
    return Batch(encode(rows, topic_seed=1, producer_id=1, first_sequence=0, born_us=0))


@given(st.sets(tags.filter(bool), min_size=1), st.lists(tags, min_size=1, max_size=20))
def test_rows_match_by_text(wanted: set[str], some: list[str]) -> None:
    one = parse(" || ".join(sorted(wanted)))
    assert one is not None
    assert one.tags == wanted
    batch = batch_of(some)
    expected = [tag in wanted for tag in some]
    mask = mask_of(some)
    if any(expected):
        assert mask & one.mask
    if any(some):
        found = one.matching(batch)
        assert (found if isinstance(found, list) else [found] * len(some)) == expected


def test_two_tags_with_one_bit_are_told_apart() -> None:
    one, other = colliding()
    wanted = parse(one)
    assert wanted is not None
    assert wanted.mask == mask_of([other])
    assert wanted.matching(batch_of([other])) is False
    assert wanted.matching(batch_of([other, one, other])) == [False, True, False]
    assert wanted.matching(batch_of([one])) is True


@pytest.mark.parametrize("text", ["", " ", "*", "  * "])
def test_everything_passes(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    "text", ["||", "a ||", "|| a", "a || || b", "a b", "a ||\tb c", "a" * 3 + " b", "a | b"]
)
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse(text)


def test_spaces_around_tags_and_repeated_tags_do_not_matter() -> None:
    one = parse("  paid||refunded ||paid ")
    assert one is not None
    assert one.tags == {"paid", "refunded"}


def test_as_many_tags_as_the_limit_says() -> None:
    assert parse(" || ".join(f"t{number}" for number in range(MAX_TAGS))) is not None
    with pytest.raises(InvalidRequest):
        parse(" || ".join(f"t{number}" for number in range(MAX_TAGS + 1)))


def test_the_mask_of_no_tag_is_empty() -> None:
    assert mask_of([]) == 0
    assert mask_of(["", ""]) == 0
    assert TagFilter(frozenset({"a", "b"})).mask == mask_of(["a"]) | mask_of(["b"])


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a|b", r"separated by '\|\|'"),
        ("a,b", r"separated by '\|\|'"),
        ("a || b|c", r"separated by '\|\|'"),
        ("|||", r"separated by '\|\|'|write it like"),
        ("a || *", "have no patterns"),
        ("a*", "have no patterns"),
        ("**", "have no patterns"),
        ("a b", "write it like"),
    ],
)
def test_a_filter_that_could_let_nothing_pass_is_refused(text: str, hint: str) -> None:
    with pytest.raises(InvalidRequest, match=hint):
        check(text)


@pytest.mark.parametrize("text", ["", "*", "a", "a || b", "ü||paid.v2 || a-b/c:d", "a||a"])
def test_a_filter_that_lets_something_pass_is_taken(text: str) -> None:
    check(text)


# ---------------------------------------------------------------------------------------- headers


def filter_(tags: str = "", filter: str = "") -> GroupFilter:  # noqa: A002
    found = filter_of(SubscriptionSpec(tags=tags, filter=filter))
    assert found is not None
    return found


def of(rows: list[Row]) -> Batch:
    return Batch(encode(rows, topic_seed=1, producer_id=1, first_sequence=0, born_us=0))


def judged(wanted: GroupFilter, batch: Batch, size: int) -> list[bool]:
    """Judge all rows of a batch, some at a time."""
    judge = wanted.judge(batch)
    found: list[bool] = []
    while len(found) < batch.count:
        start = len(found)
        part = judge.judge(start, min(start + size, batch.count))
        assert part.start == start < part.stop <= start + size
        found += [part.passed(row) for row in range(start, part.stop)]
    return found


def test_no_filter_at_all() -> None:
    assert filter_of(SubscriptionSpec(tags="*", filter=" ")) is None
    with pytest.raises(InvalidFilter):
        filter_of(SubscriptionSpec(filter="a ="))


@pytest.mark.parametrize("seed", range(150))
def test_rows_against_the_second_evaluator(seed: int) -> None:
    chance = random.Random(seed)
    text = filters.made(chance)
    names = chance.choice([["a", "b", ""], ["a"], [""]])
    wanted = chance.choice(["", "a", "a || b"])
    same = Row(b"", headers=filters.made_headers(chance), tag=chance.choice(names))
    rows = [
        same
        if seed % 3 == 0
        else Row(
            b"",
            headers=filters.made_headers(chance) if seed % 3 == 1 else {},
            tag=chance.choice(names),
            key=chance.choice(["", "10", "k"]),
            priority=3,
        )
        for _ in range(chance.randint(1, 40))
    ]
    tree = filters.read(text)
    tags = set(wanted.split(" || ")) if wanted else set(names)
    expected = [filters.truth(tree, row) is True and row.tag in tags for row in rows]
    for size in (1, 3, 1000):
        assert judged(filter_(wanted, text), of(rows), size) == expected, text


def test_constant_values_are_judged_once() -> None:
    batch = of([Row(b"%d" % at, headers={"a": "1"}, key=str(at)) for at in range(9)])
    assert filter_(filter="a = 1").judge(batch).judge(2, 9) == Judged(2, 9, passes=True)
    assert filter_(filter="a = 2").judge(batch).judge(2, 9) == Judged(2, 9, passes=False)
    found = filter_(filter="a = 1 AND $key >= '4'").judge(batch).judge(2, 6)
    assert (found.stop, found.passes) == (6, b"\0\0\1\1")


def test_priorities() -> None:
    """A message without one has 0, in whatever batch it came."""
    wanted = filter_(filter="$priority < 2 AND $priority IS NOT NULL")
    assert judged(wanted, of([Row(b""), Row(b"")]), 5) == [True, True]
    assert judged(wanted, of([Row(b"", priority=2)] * 3), 5) == [False] * 3
    rows = [Row(b"", priority=priority) for priority in (0, 1, 2, 7)]
    assert judged(wanted, of(rows), 3) == [True, True, False, False]


def test_a_row_whose_headers_are_read_costs_more() -> None:
    assert filter_(tags="a").header_cost == 1
    wanted = filter_(filter="a = '1'")
    assert wanted.header_cost == HEADER_COST
    few = of([Row(b"", headers={"a": str(at)}) for at in range(10)])
    assert wanted.judge(few).judge(0, 10).cost == (HEADER_COST - 1) * 10
    long = of([Row(b"", headers={"a": str(at), "b": "x" * 60_000}) for at in range(10)])
    part = wanted.judge(long).judge(0, 10)
    assert part.stop == 4, "a quarter of a MiB at one time"
    assert part.cost > 900


def test_a_mask_is_asked_for_tags_only() -> None:
    assert filter_(filter="$tag = 'a'").asks(0)
    wanted = filter_("a", "a = 1")
    assert wanted.asks(mask_of(["a"]))
    assert not wanted.asks(0)
    other = of([Row(b"", tag="b", headers={"a": "1"}), Row(b"", tag="c", headers={"a": "2"})])
    assert wanted.judge(other).judge(0, 2) == Judged(0, 2, passes=False)


@pytest.mark.parametrize(
    "packed", [b"\xc1", b"\x81\xa1a", b"\x90", b"\x81\x01\x02", b"\x81\xa1a\xa1\xff", b"\xc0"]
)
def test_rows_whose_headers_are_damaged_have_none(
    packed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No client of ours sends them, and they must not stop a group."""
    rows = [Row(b"", headers={"a": str(at)}) for at in range(3)]
    good = of(rows).data
    pack = columns._pack_headers
    monkeypatch.setattr(
        columns, "_pack_headers", lambda one: packed if one == {"a": "1"} else pack(one)
    )
    bad = of(rows)
    monkeypatch.undo()
    assert bad.data != good
    assert judged(filter_(filter="a >= 0"), bad, 10) == [True, False, True]
    assert judged(filter_(filter="a IS NULL"), bad, 2) == [False, True, False]
