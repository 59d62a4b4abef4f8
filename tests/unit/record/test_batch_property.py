"""Round trips over every combination of columns."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ternmq.record.batch.batch import Batch, Column, Compression, Row, encode, slice_batch, verify
from tests.unit.record.batch.test_batch import SEED

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
times = st.integers(0, 2**63 - 1)
FIELDS = {
    "key": texts,
    "ordering_key": texts,
    "tag": texts,
    "headers": st.dictionaries(texts, texts, max_size=3),
    "content_type": texts,
    "due_us": times,
    "expiry_us": times,
    "priority": st.integers(0, 255),
    "application_id": texts,
}


@st.composite
def row_lists(draw: st.DrawFn) -> list[Row]:
    """Rows in which each property is absent, the same for all, or drawn row by row."""
    count = draw(st.integers(1, 40))
    ways = draw(st.fixed_dictionaries(dict.fromkeys(FIELDS, st.sampled_from("-=~"))))
    columns: dict[str, list[Any]] = {}
    for name, values in FIELDS.items():
        if ways[name] == "=":
            columns[name] = [draw(values)] * count
        elif ways[name] == "~":
            few = draw(st.lists(values, min_size=1, max_size=4))
            columns[name] = [few[(n * n + 1) % len(few)] for n in range(count)]
    bodies = draw(st.lists(st.binary(max_size=50), min_size=1, max_size=4))
    times_longer = draw(st.sampled_from([1, 1, 300]))
    return [
        Row(bodies[n % len(bodies)] * times_longer, **{k: v[n] for k, v in columns.items()})
        for n in range(count)
    ]


u64 = st.integers(0, 2**64 - 1)


@given(
    rows=row_lists(),
    producer=u64,
    sequence=st.integers(0, 2**64 - 41),
    born_us=st.integers(-(2**63), 2**63 - 1),
    compression=st.sampled_from(Compression),
    cut=st.tuples(st.integers(0, 39), st.integers(1, 40)),
)
def test_round_trip(rows, producer, sequence, born_us, compression, cut):
    due = any(row.due_us for row in rows)
    keyed = all(row.ordering_key for row in rows)
    data = encode(
        rows,
        topic_seed=SEED,
        producer_id=producer,
        first_sequence=sequence,
        born_us=born_us,
        compression=Compression.NONE if due else compression,
        keyed=keyed,
    )
    verify(data, SEED)
    batch = Batch(data)
    assert batch.rows() == rows
    assert batch.row(len(rows) - 1) == rows[-1]
    assert (batch.producer_id, batch.first_sequence, batch.born_us) == (producer, sequence, born_us)
    assert batch.keyed == keyed
    for column, name in (
        (Column.KEY, "key"),
        (Column.ORDERING_KEY, "ordering_key"),
        (Column.TAG_CODES, "tag"),
        (Column.HEADERS, "headers"),
        (Column.CONTENT_TYPE, "content_type"),
        (Column.DUE_US, "due_us"),
        (Column.EXPIRY_US, "expiry_us"),
        (Column.PRIORITY, "priority"),
        (Column.APPLICATION_ID, "application_id"),
    ):
        assert batch.has(column) == any(getattr(row, name) for row in rows)
    start, stop = cut[0] % len(rows), min(cut[1], len(rows))
    if batch.compression is Compression.NONE and start < stop:
        part = slice_batch(data, start, stop, SEED)
        verify(part, SEED)
        assert Batch(part).rows() == rows[start:stop]
