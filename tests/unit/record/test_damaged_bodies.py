"""Bodies that the fuzzers bent, and that were taken for sound or let something odd out."""

from __future__ import annotations

import msgspec
import pytest
from google_crc32c import extend

from ternmq.record.batch.batch import Batch, BatchError, Row, encode, topic_seed, verify
from ternmq.record.fact import facts, moved
from ternmq.record.fact.facts import Cause, Outcome, Settled
from ternmq.record.fact.moved import FailureEntry, Moved, MovedFailure, Piece


@pytest.mark.parametrize("rows", [1, 5])
def test_headers_that_nest_deeply_are_damaged_headers(rows: int) -> None:
    """Nobody on the way looks into headers: a hostile producer's reach the consumer."""
    whole = {"k": "x" * 10_000}
    seed = topic_seed("orders")
    data = encode(
        [Row(b"", headers=whole)] * rows,
        topic_seed=seed, producer_id=1, first_sequence=0, born_us=1,
    )  # fmt: skip
    sound = msgspec.msgpack.encode(whole)
    deep = (b"\x81\xa1k" + b"\x91" * len(sound))[: len(sound)]
    bent = bytearray(data.replace(sound, deep))
    bent[4:8] = extend(seed, bytes(bent[8:])).to_bytes(4, "little")
    verify(bytes(bent), seed)
    with pytest.raises(BatchError) as caught:
        Batch(bytes(bent)).rows()
    assert caught.value.reason == "headers"


def test_a_reason_that_is_cut_short() -> None:
    fact = Settled(
        1, 2, 3, 4, 6, 1, 7, Outcome.RETRY, Cause.CONSUMER, 5, [(50, 51, 2, 3)], [4096], b"kaputt"
    )
    body = facts.pack_settled([fact])
    for size in range(len(body) - 8, len(body)):
        with pytest.raises(ValueError, match="short"):
            list(facts.unpack_settled(body[:size]))


def test_a_moved_that_is_cut_short() -> None:
    piece = Piece(8, 1, 0, 1, bytes(range(32)))
    failure = MovedFailure(1, 2, 3, 60, 9, (FailureEntry(1, 4, 1, 1, 0, b"why not"),))
    for whole in (Moved(2, 3, (piece,), ()), Moved(2, 3, (), (failure,))):
        body = moved.pack(whole)
        assert moved.unpack(body) == whole
        for size in range(len(body) - 8, len(body)):
            with pytest.raises(ValueError, match="short"):
                moved.unpack(body[:size])
