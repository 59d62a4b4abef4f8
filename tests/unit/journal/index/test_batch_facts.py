"""The facts of a batch are those that a whole reading of it finds."""

from __future__ import annotations

import itertools

import pytest

from ternmq.journal.index.batch_facts import _mask_of_dictionary, facts_of, mask_of
from ternmq.record.batch.batch import Batch, Row, encode
from ternmq.record.batch.slice import slice_batch, uncompressed

BODIES = [b"a", b"bb" * 50, b""]


def row(number: int, **given: object) -> Row:
    return Row(BODIES[number % 3], **given)  # type: ignore[arg-type]


def check(batch: bytes) -> None:
    known, whole = facts_of(batch), Batch(batch)
    assert (known.producer_id, known.first_sequence) == (whole.producer_id, whole.first_sequence)
    assert (known.rows, known.crc) == (whole.count, whole.crc)
    assert known.tag_mask == mask_of(whole.tag_dictionary())
    assert known.key_hashes == whole.key_hash_bytes()
    assert known.ids == whole.application_id_hash_bytes()


KEYS = {"no key": [""] * 3, "one key": ["k"] * 3, "keys": ["k", "", "m"]}
TAGS = {"no tag": [""] * 3, "one tag": ["paid"] * 3, "tags": ["paid", "", "é"]}
IDS = {"no id": [""] * 3, "ids": ["x", "", "y"]}


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(("keys", "tags", "ids"), [*itertools.product(KEYS, TAGS, IDS)])
def test_whatever_columns_there_are(
    keys: str, tags: str, ids: str, count: int, keyed: bool
) -> None:
    rows = [
        row(
            number,
            key=KEYS[keys][number],
            tag=TAGS[tags][number],
            application_id=IDS[ids][number],
            ordering_key="o" if keyed else "",
            headers={"h": "v"} if number else {},
        )
        for number in range(count)
    ]
    batch = encode(
        rows, topic_seed=1, producer_id=2**63 + 5, first_sequence=9, born_us=3, keyed=keyed
    )
    check(batch)
    if count > 1:
        check(slice_batch(uncompressed(batch, 1), 1, 3, 1))


def test_a_tag_of_its_own_for_each_message_is_not_kept() -> None:
    _mask_of_dictionary.cache_clear()
    for topic in range(3):
        tags = [f"order-{topic}-{number}" for number in range(2000)]
        rows = [Row(b"", tag=tag) for tag in tags]
        batch = encode(rows, topic_seed=1, producer_id=1, first_sequence=0, born_us=1)
        assert facts_of(batch).tag_mask == mask_of(tags)
    assert _mask_of_dictionary.cache_info().currsize == 0
    batch = encode([Row(b"", tag="paid")], topic_seed=1, producer_id=1, first_sequence=0, born_us=1)
    assert facts_of(batch).tag_mask == facts_of(batch).tag_mask == mask_of(["paid"])
    assert _mask_of_dictionary.cache_info()[:2] == (1, 1), "hits and misses"
