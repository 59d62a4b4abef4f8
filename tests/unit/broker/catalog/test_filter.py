"""Tag filters against plain sets; masks may say yes by accident, the text never does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.catalog.filter import MAX_TAGS, TagFilter, check, mask_of, parse
from ternmq.model.errors import InvalidRequest
from ternmq.record.batch.batch import Batch, Row, encode

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
