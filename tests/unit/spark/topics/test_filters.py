from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ternmq.spark import schema
from ternmq.spark.broker.offsets import OffsetRange
from ternmq.spark.topics.filters import Filter, Filters, taken

pa = pytest.importorskip("pyarrow")


class _Sparks:
    def __init__(self, attribute, value=None):
        self.attribute = attribute
        self.value = value


class EqualTo(_Sparks):
    pass


class GreaterThan(_Sparks):
    pass


class In(_Sparks):
    pass


class IsNotNull(_Sparks):
    pass


class IsNull(_Sparks):
    pass


class Not(_Sparks):
    pass


COLUMNS = schema.kinds(schema.FIELDS[:6])
NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("offset",), 5), EqualTo(("key",), b"k"), EqualTo(("topic",), "t"),
        GreaterThan(("timestamp",), NOW), In(("partition",), (1, 2)), IsNotNull(("key",)),
    ],
)  # fmt: skip
def test_what_can_be_applied_is_taken(one):
    found, left = taken([one], COLUMNS)
    assert len(found.every) == 1
    assert left == []


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("value",), b"x"), EqualTo(("key",), "text"), EqualTo(("offset",), True),
        EqualTo(("a", "b"), 1), In(("offset",), ()), In(("offset",), (1, None)),
        GreaterThan(("timestamp",), NOW.replace(tzinfo=None)), IsNull(("key",)), Not(("key",)),
    ],
)  # fmt: skip
def test_everything_else_is_left_to_spark(one):
    found, left = taken([one], COLUMNS)
    assert found.every == ()
    assert left == [one]


def test_keys_are_compared_as_they_are_read():
    columns = {**COLUMNS, "key": "string"}
    assert taken([EqualTo(("key",), "k")], columns)[0].every
    assert not taken([EqualTo(("key",), b"k")], columns)[0].every


SPANS = [OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 5, 10), OffsetRange("b", 0, 0, 3)]


@pytest.mark.parametrize(
    ("one", "left"),
    [
        (Filter("topic", "equal", "b"), SPANS[2:]),
        (Filter("topic", "greater", "a"), SPANS[2:]),
        (Filter("topic", "in", ("a", "c")), SPANS[:2]),
        (Filter("topic", "there", None), SPANS),
        (Filter("partition", "less", 1), [SPANS[0], SPANS[2]]),
        (Filter("partition", "less_equal", 1), SPANS),
        (Filter("partition", "greater_equal", 1), SPANS[1:2]),
        (Filter("offset", "equal", 7), [OffsetRange("a", 0, 7, 8), OffsetRange("a", 1, 7, 8)]),
        (Filter("offset", "less", 4), [OffsetRange("a", 0, 0, 4), OffsetRange("b", 0, 0, 3)]),
        (Filter("offset", "less_equal", 0), [OffsetRange("a", 0, 0, 1), OffsetRange("b", 0, 0, 1)]),
        (Filter("offset", "greater", 8), [OffsetRange("a", 0, 9, 10), OffsetRange("a", 1, 9, 10)]),
        (Filter("offset", "greater_equal", 9), [OffsetRange("a", 0, 9, 10),
                                                OffsetRange("a", 1, 9, 10)]),
        (Filter("offset", "in", (2, 6)), [OffsetRange("a", 0, 2, 7), OffsetRange("a", 1, 5, 7),
                                          OffsetRange("b", 0, 2, 3)]),
        (Filter("offset", "there", None), SPANS),
        (Filter("key", "equal", b"k"), SPANS),
    ],
)  # fmt: skip
def test_ranges_are_narrowed_and_nothing_is_lost(one, left):
    assert Filters((one,)).narrow(SPANS) == left


def test_a_missing_value_passes_no_comparison():
    batch = pa.RecordBatch.from_pylist([{"key": b"a"}, {"key": None}, {"key": b"b"}])
    for one, wanted in (
        (Filter("key", "equal", b"a"), [b"a"]),
        (Filter("key", "in", (b"a", b"b")), [b"a", b"b"]),
        (Filter("key", "there", None), [b"a", b"b"]),
        (Filter("key", "greater", b"a"), [b"b"]),
    ):
        assert Filters((one,)).keep(batch).column("key").to_pylist() == wanted
