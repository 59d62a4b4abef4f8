"""Offsets in checkpoints: those of released versions stay readable; the text never changes.

``tests/golden/offsets_v1.json`` is what versions wrote that did not record topics' numbers;
``offsets_v2.json`` is what this one writes. Spark writes the value that a source returns with
``json.dumps``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ternmq.model.errors import OptionError
from ternmq.spark.broker import values
from ternmq.spark.broker.offsets import Progress, TopicQueue, of_json, to_json

FOLDER = Path(__file__).parents[3] / "golden"
OFFSETS = {
    TopicQueue("audit.v2", 9): 4,
    TopicQueue("audit.v2", 10): 0,
    TopicQueue("orders", 0): 123,
    TopicQueue("orders", 1): 456,
}
NUMBERS = {"audit.v2": 12, "orders": 7}
OLD = Progress(OFFSETS)
NOW = Progress(OFFSETS, NUMBERS)


def golden(version):
    return (FOLDER / f"offsets_v{version}.json").read_text()


def test_what_older_versions_wrote_is_read():
    assert of_json(json.loads(golden(1))) == OLD
    assert of_json(json.loads(golden(2))) == NOW


def test_the_text_is_the_same_whatever_the_order():
    assert json.dumps(to_json(NOW)) == golden(2)
    turned = Progress(dict(reversed(list(OFFSETS.items()))), dict(reversed(list(NUMBERS.items()))))
    assert json.dumps(to_json(turned)) == golden(2)


def test_topics_of_a_number_that_is_not_known():
    shown = to_json(Progress(OFFSETS, {"orders": 7}))
    assert shown["$topics"] == {"orders": {"number": 7}}
    assert of_json(shown) == Progress(OFFSETS, {"orders": 7})
    assert to_json(OLD)["$topics"] == {}


def test_a_version_before_this_one_refuses_the_new_form():
    """It parses every key as a topic: the numbers of queues are none here."""
    with pytest.raises(ValueError, match="invalid literal"):
        {
            TopicQueue(topic, int(queue)): int(offset)
            for topic, queues in json.loads(golden(2)).items()
            for queue, offset in queues.items()
        }


def test_a_later_version_is_refused_by_name():
    told = {**json.loads(golden(2)), "$version": 3}
    with pytest.raises(OptionError, match=r"have version 3, this program knows 2; continue"):
        of_json(told)
    with pytest.raises(OptionError, match=r"option startingOffsets=.*have version 3"):
        values.offsets("startingOffsets", json.dumps(told))


@pytest.mark.parametrize(
    "told",
    [
        {"position": 3},
        {"orders": [1, 2]},
        {"orders": {"x": 1}},
        {"$version": 2, "$topics": {"orders": {}}, "orders": {"0": 1}},
        {"$version": 2, "$topics": 3, "orders": {"0": 1}},
        [1],
        3,
    ],
)
def test_offsets_of_another_source_are_refused(told):
    with pytest.raises(OptionError, match="its offsets belong to another source"):
        of_json(told)


def test_offsets_that_a_user_gives():
    plain = values.offsets("startingOffsets", '{"orders": {"0": -2, "1": 5}}')
    assert plain == Progress({TopicQueue("orders", 0): -2, TopicQueue("orders", 1): 5})
    assert values.offsets("startingOffsets", golden(1)) == OLD
    assert values.offsets("startingOffsets", golden(2)) == NOW
    unfit = '{"$version": 2, "$topics": {"orders": 7}, "orders": {"0": 1}}'
    for wrong in (unfit, '{"$x": {"0": 1}}'):
        with pytest.raises(OptionError, match="option startingOffsets="):
            values.offsets("startingOffsets", wrong)
