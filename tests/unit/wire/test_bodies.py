"""Bodies: as the rulers say, round trips, cut at every byte, reserved bytes, wrong names."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.model.errors import (
    Busy,
    InvalidName,
    InvalidRequest,
    ProtocolError,
    ShuttingDown,
    TernMQError,
    of_code,
    table,
)
from ternmq.wire import bodies
from ternmq.wire.bodies import (
    Delivery,
    Extend,
    Pull,
    Read,
    Receipt,
    ReceiptRow,
    Rows,
    Run,
    Send,
    Settle,
    Settled,
)
from tests.unit.wire import examples
from tests.unit.wire.examples import pack_delivery, pack_rows


class Case(NamedTuple):
    pack: Callable[[Any], bytes]
    unpack: Callable[[bytes], Any]
    value: Any
    open_ended: bool = False
    """The end of the body is the end of something that nobody here looks into."""


def spread(function: Callable[..., bytes]) -> Callable[[Any], bytes]:
    return lambda value: function(*value)


REQUESTS = {
    "send": Case(spread(bodies.pack_send), bodies.unpack_send, examples.SEND, open_ended=True),
    "send, any queue": Case(
        spread(bodies.pack_send), bodies.unpack_send, examples.SEND_ANY, open_ended=True
    ),
    "pull": Case(bodies.pack_pull, bodies.unpack_pull, examples.PULL),
    "settle": Case(bodies.pack_settle, bodies.unpack_settle, examples.SETTLE),
    "settle, all": Case(bodies.pack_settle, bodies.unpack_settle, examples.SETTLE_ALL),
    "extend": Case(bodies.pack_extend, bodies.unpack_extend, examples.EXTEND),
    "read": Case(bodies.pack_read, bodies.unpack_read, examples.READ),
    "cancel": Case(bodies.pack_cancel, bodies.unpack_cancel, 7),
}
ANSWERS = {
    "receipt": Case(bodies.pack_receipt, bodies.unpack_receipt, examples.RECEIPT),
    "receipt, others": Case(bodies.pack_receipt, bodies.unpack_receipt, examples.RECEIPT_OTHERS),
    "delivery": Case(pack_delivery, bodies.unpack_delivery, examples.DELIVERY, open_ended=True),
    "delivery of nothing": Case(
        pack_delivery, bodies.unpack_delivery, examples.NOTHING_CAME, open_ended=True
    ),
    "settled": Case(spread(bodies.pack_settled), bodies.unpack_settled, examples.SETTLED),
    "extended": Case(spread(bodies.pack_extended), bodies.unpack_extended, (1, 2)),
    "rows": Case(pack_rows, bodies.unpack_rows, examples.ROWS, open_ended=True),
    "pong": Case(bodies.pack_pong, bodies.unpack_pong, -5),
    "error": Case(
        lambda value: bodies.pack_error(*value, retriable=True, refresh_routes=False),
        bodies.unpack_error,
        (140, "zu früh"),
    ),
}
ALL = REQUESTS | ANSWERS


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
    least = len(data) - {True: 144 if isinstance(case.value, Send) else 96}.get(case.open_ended, 0)
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


def test_pull_is_as_the_ruler_says():
    assert bodies.pack_pull(Pull("ab", "c", None, 1, 2, 3)) == (
        b"\xff\xff\xff\xff\1\0\0\0\2\0\0\0\3\0\0\0\2\1\0\0\0\0\0\0abc\0\0\0\0\0"
    )
    assert pack_delivery(examples.DELIVERY) == struct.pack(
        "<IIII QqqQ QIHH QIHH",
        2, 3, 1, 2, 9, examples.TIME_US + 30, examples.TIME_US, 4096, 77, 3, 1, 1, 90, 1, 2, 5,
    ) + examples.RECORDS  # fmt: skip


def test_settle_is_as_the_ruler_says():
    reason = "kaputt: ü".encode()
    assert bodies.pack_settle(examples.SETTLE) == struct.pack(
        "<IIQ q IHBB B7x QQ QQ",
        1, 3, 9, 5_000_000, 2, len(reason), 1, 6, 7, 77, 79, 90, 91,
    ) + b"ordersbilling" + reason + bytes(1)  # fmt: skip
    assert bodies.pack_settle(examples.SETTLE_ALL)[16:24] == b"\xff" * 8
    assert bodies.pack_settled(3, [(90, 91)]) == struct.pack("<II QQ", 3, 1, 90, 91)


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

VALUES: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "send": (
        st.builds(Send, name, queue, st.binary()),
        spread(bodies.pack_send),
        bodies.unpack_send,
    ),
    "receipt": (
        st.builds(
            Receipt, offset, u32, u32, u32, st.booleans(), st.booleans(),
            st.lists(st.builds(ReceiptRow, u32, offset, st.booleans())).map(tuple),
        ),
        bodies.pack_receipt,
        bodies.unpack_receipt,
    ),
    "pull": (
        st.builds(Pull, name, name, queue, count, u32, u32),
        bodies.pack_pull,
        bodies.unpack_pull,
    ),
    "delivery": (
        st.builds(
            Delivery, u32, u32, u32, u64, i64, i64, u64,
            st.lists(st.builds(Run, u64, u32, st.integers(0, 65_535), st.integers(0, 65_535))).map(
                tuple
            ),
            st.binary(),
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


# ------------------------------------------------------------------------------ what is refused

RESERVED = {
    "send": (5, 8),
    "pull": (18, 24),
    "settle": (33, 40),
    "extend": (26, 32),
    "read": (25, 32),
}


@pytest.mark.parametrize(
    ("kind", "at"), [(kind, at) for kind, span in RESERVED.items() for at in range(*span)]
)
def test_reserved_bytes_are_zero(kind, at):
    case = REQUESTS[kind]
    data = bytearray(case.pack(case.value))
    assert data[at] == 0
    data[at] = 1
    with pytest.raises(InvalidRequest):
        case.unpack(bytes(data))


@pytest.mark.parametrize("kind", RESERVED)
def test_padding_is_zero(kind):
    case = REQUESTS[kind]
    value = case.value._replace(topic="t" * 10)
    data = bytearray(case.pack(value))
    end = len(data) - (len(examples.BATCH) if kind == "send" else 0)
    assert data[end - 1] == 0
    data[end - 1] = 1
    with pytest.raises(InvalidRequest):
        case.unpack(bytes(data))


NO_NAMES = [
    "", ".", "..", "a" * 128, "../../etc/passwd", "a/b", "a\0", "a\n", "a b", "ü", "оrders",
    "$", "a$b", "$$a", "a\ud800",
]  # fmt: skip


@pytest.mark.parametrize("kind", RESERVED)
@pytest.mark.parametrize("bad", NO_NAMES)
def test_what_is_no_name_is_not_packed(kind, bad):
    case = REQUESTS[kind]
    with pytest.raises(InvalidName):
        case.pack(case.value._replace(topic=bad))
    if hasattr(case.value, "group"):
        with pytest.raises(InvalidName):
            case.pack(case.value._replace(group=bad))


@pytest.mark.parametrize(
    "bad", [b"", b".", b"..", b"a/b", b"../etc", b"a\0b", b"a\n", b"\xff\xfe", "ü".encode(), b"$"]
)
def test_what_is_no_name_is_not_unpacked(bad):
    padded = bad + bytes(-len(bad) % 8)
    with pytest.raises(InvalidName):
        bodies.unpack_send(struct.pack("<IB3x", 0, len(bad)) + padded + examples.BATCH)
    both = b"ok" + bad
    both += bytes(-len(both) % 8)
    for body in (
        struct.pack("<IIIIBB6x", 0, 1, 0, 0, 2, len(bad)) + both,
        struct.pack("<IIQqIHBBB7x", 1, 3, 9, -1, 0, 0, 0, 2, len(bad)) + both,
        struct.pack("<IIQQBB6x", 1, 3, 9, 5, 2, len(bad)) + both,
    ):
        unpack = {24: bodies.unpack_pull, 40: bodies.unpack_settle, 32: bodies.unpack_extend}
        with pytest.raises(InvalidName):
            unpack[len(body) - len(both)](body)
    with pytest.raises(InvalidName):
        bodies.unpack_read(struct.pack("<IIIIQB7x", 0, 1, 0, 0, 0, len(bad)) + padded)


def test_the_longest_name_and_one_of_the_broker():
    for good in ("a" * 127, "$" + "a" * 126, "...", "-"):
        assert bodies.unpack_send(bodies.pack_send(good, 0, b"")).topic == good
    for size in (128, 255):
        body = struct.pack("<IB3x", 0, size) + b"a" * size + bytes(-size % 8)
        with pytest.raises(InvalidRequest):
            bodies.unpack_send(body)
        body = struct.pack("<IIIIQB7x", 0, 1, 0, 0, 0, size) + b"a" * size + bytes(-size % 8)
        with pytest.raises(InvalidName):
            bodies.unpack_read(body)


@pytest.mark.parametrize("span", [(5, 5), (6, 5), (2**64 - 1, 0), (0, 3), (1, 2), (1, 3)])
def test_spans_hold_something_and_do_not_overlap(span):
    with pytest.raises(InvalidRequest, match="span"):
        bodies.unpack_settle(bodies.pack_settle(examples.SETTLE._replace(spans=((1, 2), span))))


def test_spans_are_put_in_order():
    body = bodies.pack_settle(examples.SETTLE._replace(spans=((7, 9), (3, 7), (1, 2))))
    assert bodies.unpack_settle(body).spans == ((1, 2), (3, 7), (7, 9))
    swapped = body[:40] + body[56:72] + body[40:56] + body[72:]
    with pytest.raises(InvalidRequest, match="order"):
        bodies.unpack_settle(swapped)


def test_there_are_at_most_so_many_spans():
    most = tuple((2 * n, 2 * n + 1) for n in range(bodies.MAX_SPANS + 1))
    assert len(
        bodies.unpack_settle(bodies.pack_settle(examples.SETTLE._replace(spans=most[1:]))).spans
    ) == bodies.MAX_SPANS  # fmt: skip
    with pytest.raises(InvalidRequest):
        bodies.unpack_settle(bodies.pack_settle(examples.SETTLE._replace(spans=most)))


def test_a_count_that_is_believed_would_take_memory():
    head = struct.pack("<IIQqIHBBB7x", 1, 3, 9, -1, 2**32 - 1, 0, 0, 1, 1)
    with pytest.raises(InvalidRequest):
        bodies.unpack_settle(head + b"tg" + bytes(6))
    for unpack, body in (
        (bodies.unpack_receipt, struct.pack("<QIIIIII", 0, 0, 0, 0, 0, 2**32 - 1, 0)),
        (bodies.unpack_delivery, struct.pack("<IIIIQqqQ", 0, 0, 0, 2**32 - 1, 0, 0, 0, 0)),
        (bodies.unpack_settled, struct.pack("<II", 0, 2**32 - 1)),
        (bodies.unpack_error, struct.pack("<HBBI", 0, 0, 0, 2**32 - 1)),
    ):
        with pytest.raises(ProtocolError):
            unpack(body)


@pytest.mark.parametrize("outcome", [4, 5, 255])
def test_outcomes(outcome):
    with pytest.raises(InvalidRequest, match="outcome"):
        bodies.unpack_settle(bodies.pack_settle(examples.SETTLE._replace(outcome=outcome)))


def test_delays():
    for good in (0, 1, 2**63 - 1, None):
        again = bodies.unpack_settle(bodies.pack_settle(examples.SETTLE._replace(delay_us=good)))
        assert again.delay_us == good
    with pytest.raises(InvalidRequest, match="delay"):
        bodies.unpack_settle(bodies.pack_settle(examples.SETTLE._replace(delay_us=-2)))


def test_reasons():
    def again(text: str) -> str:
        return bodies.unpack_settle(
            bodies.pack_settle(examples.SETTLE._replace(reason=text))
        ).reason

    assert again("x" * 5000) == "x" * 4096
    assert again("ü" * 3000) == "ü" * 2048
    assert again("x" + "ü" * 3000) == "x" + "ü" * 2047, "cut between characters"
    assert again("a\ud800b") == "a?b", "a path that is no text"
    body = struct.pack("<IIQqIHBBB7x", 1, 3, 9, -1, 0, 4, 0, 1, 1) + b"tg" + b"\xff\xff\xff\xff\0\0"
    with pytest.raises(InvalidRequest, match="UTF-8"):
        bodies.unpack_settle(body)
    body = struct.pack("<IIQqIHBBB7x", 1, 3, 9, -1, 0, 4097, 0, 1, 1) + b"tg" + b"x" * 4102
    with pytest.raises(InvalidRequest, match="reason"):
        bodies.unpack_settle(body)


def test_pulls_and_reads_of_nothing():
    with pytest.raises(InvalidRequest):
        bodies.unpack_pull(bodies.pack_pull(examples.PULL._replace(max_messages=0)))
    with pytest.raises(InvalidRequest):
        bodies.unpack_read(bodies.pack_read(examples.READ._replace(max_messages=0)))


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("send", "queue"), ("pull", "queue"), ("pull", "max_messages"), ("pull", "max_bytes"),
        ("pull", "wait_ms"), ("settle", "epoch"), ("settle", "lease"), ("settle", "delay_us"),
        ("settle", "outcome"), ("extend", "extension_us"), ("read", "offset"), ("read", "wait_ms"),
    ],
)  # fmt: skip
def test_numbers_that_do_not_fit(kind, field):
    case = REQUESTS[kind]
    for number in (-(2**64), 2**64):
        with pytest.raises(InvalidRequest):
            case.pack(case.value._replace(**{field: number}))


def test_ping_and_bye_are_empty():
    bodies.unpack_nothing(b"")
    with pytest.raises(InvalidRequest):
        bodies.unpack_nothing(b"\0")


# ------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("kind", table().values(), ids=lambda kind: kind.__name__)
def test_every_error_travels(kind):
    error = kind("what happened")
    body = bodies.pack_error(
        error.code,
        "what happened",
        retriable=error.retriable,
        refresh_routes=error.refresh_routes,
    )
    again = bodies.unpack_refusal(body)
    assert type(again) is kind
    assert str(again) == str(error)


def test_an_error_of_a_newer_broker_goes_by_its_flags():
    for retriable in (False, True):
        for refresh in (False, True):
            body = bodies.pack_error(9999, "new", retriable=retriable, refresh_routes=refresh)
            error = bodies.unpack_refusal(body)
            assert (error.retriable, error.refresh_routes) == (retriable, refresh)
            assert "9999" in str(error)
    assert not of_code(9999, "x").retriable
    assert not TernMQError.retriable
    assert Busy.retriable
    assert ShuttingDown.refresh_routes


def test_a_long_text_is_cut_between_characters():
    code, text = bodies.unpack_error(
        bodies.pack_error(101, "x" + "ü" * 1000, retriable=False, refresh_routes=False)
    )
    assert code == 101
    assert text == "x" + "ü" * 511
