"""Bodies that are refused: reserved bytes, names, spans, lengths; errors, which are answers too."""

from __future__ import annotations

import struct

import pytest

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
from tests.unit.wire import examples
from tests.unit.wire.cases import REQUESTS

# ------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("writer", "part", "says"),
    [
        ("", "", "the name of a writer has 0 bytes: 1 to 128 are allowed"),
        ("w" * 200, "", "the name of a writer has 200 bytes: 1 to 128 are allowed"),
        ("w\n", "", r"the name of a writer has control characters: 'w\\n'"),
        ("w", "p" * 129, "the name of a part has 129 bytes: 0 to 128 are allowed"),
        ("w", "\x7f", "the name of a part has control characters"),
    ],
)
def test_names_of_writers_and_parts(writer, part, says):
    with pytest.raises(InvalidRequest, match=says):
        bodies.pack_prepare(bodies.Prepare("t", None, writer, 1, part, b""))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"query_id": "q" * 256}, "the query id has 256 bytes: 0 to 255 are allowed"),
        ({"query_id": "a\nb"}, "the query id has control characters"),
        ({"producer": 2**64}, "does not fit"),
        ({"transaction": -1}, "does not fit"),
    ],
)
def test_what_no_prepare_of_a_transaction_has(change, says):
    with pytest.raises(InvalidRequest, match=says):
        bodies.pack_transaction_prepare(examples.TRANSACTION_PREPARE._replace(**change))


@pytest.mark.parametrize("group", ["", "a b", "a" * 128])
def test_a_transaction_has_a_producer_group(group):
    with pytest.raises(InvalidName):
        bodies.pack_transaction_prepare(examples.TRANSACTION_PREPARE._replace(group=group))


def test_without_a_topic_there_is_no_batch():
    body = bodies.pack_transaction_prepare(examples.TRANSACTION_OPEN)
    with pytest.raises(InvalidRequest, match="were described"):
        bodies.unpack_transaction_prepare(body + b"batch")


def test_reserved_bytes_of_transactions_are_zero():
    for name, at in (
        ("transaction prepare", [7]), ("transaction read", range(20, 24)),
        ("transaction settle", range(41, 48)),
    ):  # fmt: skip
        case = REQUESTS[name]
        for one in at:
            data = bytearray(case.pack(case.value))
            assert data[one] == 0
            data[one] = 1
            with pytest.raises(InvalidRequest):
                case.unpack(bytes(data))


RESERVED = {
    "send": (5, 8),
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
        (bodies.unpack_delivery, struct.pack("<IIIIQqqQII", 0, 0, 0, 2**32 - 1, 0, 0, 0, 0, 0, 0)),
        (bodies.unpack_settled, struct.pack("<II", 0, 2**32 - 1)),
        (bodies.unpack_error, struct.pack("<HBBI", 0, 0, 0, 2**32 - 1)),
    ):
        with pytest.raises(ProtocolError):
            unpack(body)


@pytest.mark.parametrize(
    "failures",
    [
        struct.pack("<QIHBB", 90, 1, 1, 0, 0),  # its reason is missing
        struct.pack("<QIHBB", 90, 1, 1, 0, 0) + b"x",  # its padding
        struct.pack("<QIHBB", 90, 1, 1, 0, 0) + b"\xff" + bytes(7),  # no UTF-8
        bytes(8),
    ],
)
def test_failures_that_are_none(failures):
    head = bodies.delivery_head(2, 3, 1, 9, 30, 0, 0, [(90, 91, 2, 5)], failures)
    with pytest.raises(ProtocolError):
        bodies.unpack_delivery(head)


def test_a_long_reason_is_cut_between_characters():
    reason = "ü" * bodies.MAX_LAST_REASON_BYTES
    data = bodies.pack_failures([bodies.LastFailure(1, 2, 0, "x" + reason)])
    told = bodies.unpack_delivery(bodies.delivery_head(2, 3, 1, 9, 30, 0, 0, [(1, 3, 2, 2)], data))
    (failure,) = told.failures
    assert failure == (1, 2, 0, "x" + "ü" * (bodies.MAX_LAST_REASON_BYTES // 2 - 1))


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


def test_a_detached_lease_of_more_than_a_day():
    day = examples.PULL._replace(detached_ms=86_400_000)
    assert bodies.unpack_pull(bodies.pack_pull(day)) == day
    with pytest.raises(InvalidRequest, match="more than a day"):
        bodies.unpack_pull(bodies.pack_pull(day._replace(detached_ms=86_400_001)))


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
