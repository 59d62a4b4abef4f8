"""Bodies: as the rulers say, round trips, cut at every byte, bent at random."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.model.errors import InvalidRequest, ProtocolError
from ternmq.wire import bodies
from ternmq.wire.bodies import (
    Delivery,
    Extend,
    LastFailure,
    Prepare,
    Pull,
    Read,
    Receipt,
    ReceiptRow,
    Rows,
    Run,
    Send,
    Settle,
    Settled,
    TransactionPrepare,
)
from tests.unit.wire import examples
from tests.unit.wire.cases import ALL, ANSWERS, REQUESTS, spread
from tests.unit.wire.examples import pack_delivery, pack_rows


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_what_was_packed_is_unpacked(case):
    assert case.unpack(case.pack(case.value)) == case.value


@pytest.mark.parametrize(
    ("case", "error"),
    [(case, InvalidRequest) for case in REQUESTS.values()]
    + [(case, ProtocolError) for case in ANSWERS.values()],
)
def test_cut_at_every_byte_and_with_trailing_bytes(case, error):
    data = case.pack(case.value)
    whole = 144 if isinstance(case.value, Send | Prepare | TransactionPrepare) else 96
    least = len(data) - (whole if case.open_ended else 0)
    if case.value is examples.NOTHING_CAME:
        least = len(data)
    for size in range(least):
        with pytest.raises(error):
            case.unpack(data[:size])
    if not case.open_ended:
        for extra in (b"\0", bytes(8), b"x" * 100):
            with pytest.raises(error):
                case.unpack(data + extra)


# ------------------------------------------------------------------------------ to the byte


def test_send_is_as_the_ruler_says():
    assert bodies.pack_send("orders", 3, b"BATCH") == (b"\3\0\0\0\6\0\0\0orders\0\0BATCH")
    assert bodies.pack_send("a" * 8, None, b"") == b"\xff\xff\xff\xff\x08\0\0\0" + b"a" * 8
    assert bodies.send_prefix("orders", 3) + b"BATCH" == bodies.pack_send("orders", 3, b"BATCH")


def test_receipt_is_as_the_ruler_says():
    assert bodies.pack_receipt(examples.RECEIPT_OTHERS) == struct.pack(
        "<QII IIII QII QII",
        2**64 - 1, 2, 3, 0, 3, 2, 0, 12, 4, 0, 2**64 - 1, 5, 1,
    )  # fmt: skip
    assert bodies.pack_receipt(examples.RECEIPT_QUEUES) == struct.pack(
        "<QII IIII QIHH QIHH",
        7, 2, 3, 1, 0, 2, 0, 12, 4, 0, 4096, 13, 5, 0, 1,
    )  # fmt: skip
    assert bodies.pack_receipt(examples.RECEIPT_SCHEDULED) == struct.pack(
        "<QII IIII", 2**64 - 1, 2, 0, 1, 4, 0, 0
    )
    assert bodies.pack_receipt(examples.RECEIPT_CANCELLED) == struct.pack(
        "<QII IIII QIHH", 2**64 - 1, 2, 0, 1, 4, 1, 0, 2**64 - 1, 1, 3, 0
    )


def test_pull_is_as_the_ruler_says():
    assert bodies.pack_pull(Pull("ab", "c", None, 1, 2, 3)) == (
        b"\xff\xff\xff\xff\1\0\0\0\2\0\0\0\3\0\0\0\2\1\0\0\0\0\0\0abc\0\0\0\0\0"
    )
    assert bodies.pack_pull(Pull("ab", "c", None, 1, 2, 3, 258))[16:24] == b"\2\1\2\1\0\0\0\0"
    most = bodies.pack_pull(Pull("a", "b", 0, 1, 2, 3, 70_000))
    assert bodies.unpack_pull(most).at_once == 65_535
    assert bodies.pack_pull(Pull("a", "b", 0, 1, 2, 3, 4, 258))[16:24] == b"\1\1\4\0\2\1\0\0"
    assert pack_delivery(examples.DELIVERY) == struct.pack(
        "<IIII QqqQ II QIHH QIHH QIHBB 10s6x",
        2, 3, 1, 2, 9, examples.TIME_US + 30, examples.TIME_US, 4096, 32, 0,
        77, 3, 1, 1, 90, 1, 2, 5, 90, 1, 10, 0, 0, "kaputt: ü".encode(),
    ) + examples.RECORDS  # fmt: skip


def test_settle_is_as_the_ruler_says():
    reason = "kaputt: ü".encode()
    assert bodies.pack_settle(examples.SETTLE) == struct.pack(
        "<IIQ q IHBB B7x QQ QQ",
        1, 3, 9, 5_000_000, 2, len(reason), 1, 6, 7, 77, 79, 90, 91,
    ) + b"ordersbilling" + reason + bytes(1)  # fmt: skip
    assert bodies.pack_settle(examples.SETTLE_ALL)[16:24] == b"\xff" * 8
    assert bodies.pack_settled(3, [(90, 91)]) == struct.pack("<II QQ", 3, 1, 90, 91)


def test_transactions_are_as_the_rulers_say():
    names = b"ordersorder-serviceorder-7 " + "ü".encode()
    names += bytes(-len(names) % 8)
    head = struct.pack("<IBBBBQQQQ", 3, 6, 13, 10, 0, 2**64 - 1, 41, 0x1F3, 30_000_000)
    assert bodies.pack_transaction_prepare(examples.TRANSACTION_PREPARE) == (
        head + names + examples.BATCH
    )
    assert examples.pack_transaction_prepared(examples.TRANSACTION_PREPARED) == struct.pack(
        "<QIIII", 0x1F3, 2, 3, 1, 1
    )
    settle = bodies.pack_settle(examples.TRANSACTION_SETTLE.settle)
    told = bodies.pack_transaction_settle(examples.TRANSACTION_SETTLE)
    assert told == struct.pack("<Q", 0x1F3) + settle
    told = bodies.pack_transaction_read(examples.TRANSACTION_READ)
    assert told == struct.pack("<QQII", 0x1F3, 4096, 1_048_576, 0)
    told = examples.pack_transaction_rows(examples.TRANSACTION_ROWS)
    names = struct.pack("<QIIIIII", 8192, 2, 0, 2, 6, 5, 5) + b"ordersstock" + bytes(5)
    assert told == names + examples.RECORDS


def test_extend_read_cancel_ping_are_as_the_rulers_say():
    assert bodies.pack_extend(examples.EXTEND) == struct.pack(
        "<IIQ QBB6x", 1, 3, 9, 30_000_000, 6, 7
    ) + b"ordersbilling" + bytes(3)
    assert bodies.pack_extended(1, -2) == struct.pack("<qq", 1, -2)
    assert (
        bodies.pack_read(examples.READ)
        == struct.pack("<IIII QB7x", 3, 100, 0, 1000, 77, 6) + b"orders\0\0"
    )
    assert pack_rows(examples.ROWS)[:40] == struct.pack("<IIQQQQ", 2, 3, 77, 80, 5, 91)
    assert bodies.pack_cancel(7) == struct.pack("<Q", 7)
    assert bodies.pack_pong(-1) == b"\xff" * 8


def test_error_is_as_the_ruler_says():
    assert bodies.pack_error(144, "über", retriable=True, refresh_routes=True) == (
        b"\x90\0\3\0\5\0\0\0" + "über".encode()
    )


# ------------------------------------------------------------------------------ round trips

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
name = st.from_regex(r"[A-Za-z0-9._-]{1,127}", fullmatch=True).filter(
    lambda text: text not in {".", ".."}
)
queue = st.none() | st.integers(0, 2**32 - 2)
spans = st.lists(u64, unique=True, max_size=40).map(
    lambda ends: tuple(zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False))
)
offset = st.none() | st.integers(0, 2**64 - 2)
count = st.integers(1, 2**32 - 1)
reason = st.text(max_size=1000)
row_queue = st.none() | st.integers(0, 2**16 - 2)
short = st.text(max_size=bodies.MAX_LAST_REASON_BYTES // 4)

VALUES: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "send": (
        st.builds(Send, name, queue, st.binary()),
        spread(bodies.pack_send),
        bodies.unpack_send,
    ),
    "receipt": (
        st.builds(
            Receipt, offset, u32, u32, u32, st.booleans(), st.booleans(),
            st.lists(st.builds(ReceiptRow, u32, offset, st.booleans(), row_queue)).map(tuple),
        ),
        bodies.pack_receipt,
        bodies.unpack_receipt,
    ),
    "pull": (
        st.builds(
            Pull, name, name, queue, count, u32, u32, st.integers(0, 65_535),
            st.integers(0, 86_400_000),
        ),
        bodies.pack_pull,
        bodies.unpack_pull,
    ),
    "delivery": (
        st.builds(
            Delivery, u32, u32, u32, u64, i64, i64, u64,
            st.lists(st.builds(Run, u64, u32, st.integers(0, 65_535), st.integers(0, 65_535))).map(
                tuple
            ),
            st.lists(st.builds(LastFailure, u64, u32, st.integers(0, 255), short)).map(tuple),
            st.binary(), u32,
        ),
        pack_delivery,
        bodies.unpack_delivery,
    ),
    "settle": (
        st.builds(
            Settle, name, name, u32, u32, u64, st.sampled_from(bodies.OUTCOMES), spans,
            st.none() | st.integers(0, 2**63 - 1), reason,
        ),
        bodies.pack_settle,
        bodies.unpack_settle,
    ),
    "settled": (st.builds(Settled, u32, spans), spread(bodies.pack_settled), bodies.unpack_settled),
    "extend": (
        st.builds(Extend, name, name, u32, u32, u64, u64),
        bodies.pack_extend,
        bodies.unpack_extend,
    ),
    "read": (
        st.builds(Read, name, u32, u64, count, u32, u32),
        bodies.pack_read,
        bodies.unpack_read,
    ),
    "rows": (
        st.builds(Rows, u32, u32, u64, u64, u64, u64, st.binary()),
        pack_rows,
        bodies.unpack_rows,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
@given(st.data())
def test_any_value_comes_back(kind, data):
    values, pack, unpack = VALUES[kind]
    value = data.draw(values)
    assert unpack(pack(value)) == value


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
@given(st.data())
def test_any_bytes_are_judged(case, data):
    """Nothing but the two errors comes out; what is accepted packs to the same bytes again."""
    packed = bytearray(case.pack(case.value))
    for _ in range(data.draw(st.integers(0, 3))):
        if packed:
            packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    body = bytes(packed[: data.draw(st.integers(0, len(packed)))]) + data.draw(st.binary())
    try:
        value = case.unpack(body)
    except (InvalidRequest, ProtocolError):
        return
    if case in REQUESTS.values():
        assert case.pack(value) == body
