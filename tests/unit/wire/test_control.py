"""Control bodies: round trips, older and newer sides, bounds, what is no map."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.model.errors import InvalidRequest, ProtocolError
from ternmq.model.specs import check_query_id
from ternmq.wire import control
from ternmq.wire.commands import PUSHES, TABLE, Command
from tests.unit.wire import examples

PAIRS = {
    f"{command.name} {what}": struct
    for command, structs in examples.STRUCTS.items()
    for what, struct in zip(("request", "answer"), structs, strict=True)
} | {command.name: struct for command, struct in examples.PUSHES.items()}
PAIRS |= {"follow": examples.FOLLOW, "followed": examples.FOLLOWED, "resign": examples.RESIGN}
PAIRS |= {"segment read": examples.SEGMENT_READ}
REQUESTS = {command: entry.request for command, entry in TABLE.items() if entry.request is not None}


@pytest.mark.parametrize("struct", PAIRS.values(), ids=PAIRS)
def test_what_was_encoded_is_decoded(struct):
    body = control.encode(struct)
    assert control.decode(body, type(struct)) == struct
    assert control.decode_answer(body, type(struct)) == struct


def test_examples_are_of_the_kinds_in_the_table():
    for command, (request, answer) in examples.STRUCTS.items():
        assert type(request) is TABLE[command].request
        assert type(answer) is TABLE[command].answer
    for command, push in examples.PUSHES.items():
        assert type(push) is PUSHES[command]


@pytest.mark.parametrize("struct", PAIRS.values(), ids=PAIRS)
def test_cut_at_every_byte_and_with_trailing_bytes(struct):
    body = control.encode(struct)
    for size in range(len(body)):
        with pytest.raises(InvalidRequest):
            control.decode(body[:size], type(struct))
        with pytest.raises(ProtocolError):
            control.decode_answer(body[:size], type(struct))
    for extra in (b"\0", b"\xc1", body):
        with pytest.raises(InvalidRequest):
            control.decode(body + extra, type(struct))


def test_a_broker_that_takes_no_at_once():
    """It was added later: a client must not say it to the brokers of before, which leave it out."""
    told = msgspec.msgpack.decode(control.encode(examples.WELCOME))
    assert "pull_at_once" not in told
    assert not control.decode_answer(msgspec.msgpack.encode(told), control.Welcome).pull_at_once
    newer = msgspec.msgpack.encode(told | {"pull_at_once": True})
    assert control.decode_answer(newer, control.Welcome).pull_at_once


def test_a_broker_that_does_not_say_its_software():
    """It was added later: the brokers of before leave it out."""
    told = msgspec.msgpack.decode(control.encode(examples.WELCOME))
    assert "software" not in told
    assert control.decode_answer(msgspec.msgpack.encode(told), control.Welcome).software == ""
    newer = msgspec.msgpack.encode(told | {"software": "ternmq 0.1"})
    assert control.decode_answer(newer, control.Welcome).software == "ternmq 0.1"


@pytest.mark.parametrize("query_id", ["q" * 255, "é" * 127], ids=["bytes", "characters"])
def test_the_longest_query_id_can_be_asked_about(query_id):
    """The question was limited to 200 characters: no client could read one about a longer id."""
    asked = control.TransactionCheck(transaction=1, group="g", query_id=check_query_id(query_id))
    assert control.decode_answer(control.encode(asked), control.TransactionCheck) == asked


@pytest.mark.parametrize("struct", PAIRS.values(), ids=PAIRS)
def test_fields_of_a_newer_side_are_ignored(struct):
    fields = msgspec.msgpack.decode(control.encode(struct))
    newer = msgspec.msgpack.encode(fields | {"colour": {"deep": [1, {"x": None}]}})
    assert control.decode(newer, type(struct)) == struct


@pytest.mark.parametrize("kind", REQUESTS.values(), ids=lambda kind: kind.__name__)
@given(st.binary(max_size=200))
def test_any_bytes_are_judged(kind, body):
    with contextlib.suppress(InvalidRequest):
        control.decode(body, kind)


def test_what_came_does_not_come_back_whole():
    body = msgspec.msgpack.encode({"topic": "t", "group": "g", "to": "x" * 10_000})
    with pytest.raises(InvalidRequest) as caught:
        control.decode(body, control.GroupReset)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("depth", [100, 4000, 200_000])
def test_deep_nests(depth):
    for opened, closed in ((b"\x91", b"\xc0"), (b"\x81\xa1x", b"\xc0")):
        body = b"\x81\xa1x" + opened * depth + closed
        try:
            control.decode(body, control.TopicList)
        except InvalidRequest:
            assert depth > 100


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\xc0", b"\x01", b"\x90", b"\x81", b"\x81\x01\x02", b"\x81\xa5limit\xa1x",
        b"\x81\xa5after\xa2\xff\xfe", b"\x81\xa5names\xdd\xff\xff\xff\xff",
        b"\x81\xa5after\xdb\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x81\xa5limit\xc3",
        b"\x81\xa5limit\xcb" + bytes(8),
    ],
)  # fmt: skip
def test_what_is_no_such_map(body):
    with pytest.raises(InvalidRequest):
        control.decode(body, control.TopicList)


U32 = [-1, 2**32]
I63 = [-1, 2**63, 2**64 - 1]
LIMIT = [0, -1, 10_001, 2**63]
OUT_OF_BOUNDS: dict[tuple[type[msgspec.Struct], str], list[Any]] = {
    (control.Hello, "session"): U32,
    (control.Hello, "pid"): U32,
    (control.Hello, "client"): ["", "a" * 65, "a b", "a\n", "ü"],
    (control.Hello, "library"): ["a\n", "\x1b[31m", "\x7f", "x" * 201],
    (control.Keep, "leases"): [
        [{"epoch": 1, "lease": 1}] * 10_001,
        [{"epoch": -1, "lease": 1}],
        [{"epoch": 1, "lease": 2**63}],
    ],
    (control.Report, "producer"): [-1],
    (control.Report, "entries"): [
        [{"bucket_us": 0, "sent": 0, "given_up": 0}] * 10_001,
        [{"bucket_us": -1, "sent": 0, "given_up": 0}],
        [{"bucket_us": 0, "sent": -1, "given_up": 0}],
        [{"bucket_us": 0, "sent": 0, "given_up": 2**63}],
    ],
    (control.TopicList, "limit"): LIMIT,
    (control.TopicList, "names"): [["x"] * 10_001],
    (control.GroupJoin, "tags"): ["x" * 4097],
    (control.GroupReset, "queue"): U32,
    (control.GroupReset, "offset"): I63,
    (control.GroupReset, "time_us"): I63,
    (control.GroupReset, "to"): ["tomorrow"],
    (control.GroupSkip, "queue"): U32,
    (control.GroupSkip, "offset"): I63,
    (control.GroupReplay, "spans"): [
        [{"queue": 0, "start": 0, "stop": 1}] * 1001,
        [{"queue": -1, "start": 0, "stop": 1}],
        [{"queue": 0, "start": -1, "stop": 1}],
        [{"queue": 0, "start": 0, "stop": 2**63}],
        [{"queue": 0, "start": 0}],
    ],
    (control.GroupReplay, "ids"): [["1:1"] * 101, ["a\nb"], [1]],
    (control.Find, "queue"): U32,
    (control.Find, "offset"): I63,
    (control.Find, "limit"): LIMIT,
    (control.Find, "id"): ["a\nb", "x" * 201],
    (control.Find, "after"): ["a\0"],
    (control.Find, "key"): ["x" * 65_537],
    (control.OffsetAt, "queue"): U32,
    (control.OffsetAt, "time_us"): I63,
    (control.FailedList, "queue"): U32,
    (control.FailedList, "after"): [-2, 2**63],
    (control.FailedList, "limit"): LIMIT,
    (control.FailedList, "offset"): I63,
    (control.FailedList, "offsets"): [[-1], [2**63], [1] * 251],
    (control.FailedQuery, "queue"): U32,
    (control.FailedQuery, "limit"): LIMIT,
    (control.FailedQuery, "key"): ["x" * 65_537],
    (control.FailedQuery, "id"): ["x" * 4097],
    (control.FailedQuery, "after"): ["x" * 301],
    (control.FailedQuery, "select"): [
        {"states": ["dread"]},
        {"states": ["dead"] * 4},
        {"since_us": -1},
        {"until_us": 2**63},
        {"attempts": -1},
        {"attempts": 2**64 - 1},
    ],
    (control.FailedRetry, "only"): [{"states": ["dread"]}, {"since_us": -1}],
    (control.FailedDelete, "only"): [{"states": [1]}, {"attempts": -1}],
    (control.FailedRedrive, "only"): [{"states": "dead"}, {"until_us": 2**63}],
    (control.FailedRetry, "queue"): U32,
    (control.FailedRetry, "offsets"): [[-1], [2**63], [1] * 10_001],
    (control.FailedDelete, "queue"): U32,
    (control.FailedDelete, "offsets"): [[-1], [2**63], [1] * 10_001],
    (control.FailedRedrive, "queue"): U32,
    (control.FailedRedrive, "offsets"): [[-1], [2**63], [1] * 10_001],
    (control.FailedRedrive, "after"): [-2, 2**63],
    (control.FailedRedrive, "limit"): LIMIT,
    (control.AppPut, "owner"): ["a\nb"],
    (control.AppPut, "grants"): [[{"right": "consume"}] * 1001, [{"right": "a\nb"}]],
}


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [(kind, field, value) for (kind, field), values in OUT_OF_BOUNDS.items() for value in values],
    ids=lambda value: str(value)[:20],
)
def test_out_of_bounds(kind, field, value):
    (request,) = [request for request, _ in examples.STRUCTS.values() if isinstance(request, kind)]
    fields = msgspec.msgpack.decode(control.encode(request))
    control.decode(msgspec.msgpack.encode(fields), kind)
    with pytest.raises(InvalidRequest):
        control.decode(msgspec.msgpack.encode(fields | {field: value}), kind)


def integers(kind: type, path: str = "") -> list[str]:
    """Return the fields of a request that are integers without bounds."""
    found: list[str] = []
    for field in msgspec.structs.fields(kind):
        text = repr(msgspec.inspect.type_info(field.type))
        if "IntType(gt=None, ge=None" in text:
            found.append(f"{kind.__name__}.{field.name}")
    return found


def test_every_number_of_a_request_is_bounded():
    """A spec's numbers are judged by its ``check``, which the core calls."""
    loose = [one for kind in REQUESTS.values() for one in integers(kind)]
    assert loose == [
        "Hello.versions", "TopicCreate.spec", "TopicChange.spec", "GroupJoin.retry",
        "GroupJoin.assign", "GroupChange.spec",
    ]  # fmt: skip


def test_what_cannot_be_encoded():
    with pytest.raises(InvalidRequest):
        control.encode(control.TopicDelete(topic="a\ud800"))
    with pytest.raises(InvalidRequest):
        control.encode(control.OffsetFound(offset=2**64))


def test_hello_names_itself_and_defaults_are_left_out():
    assert b"TernMQ" in control.encode(control.Hello(client="c"))
    assert control.encode(control.TopicList()) == b"\x80"
    assert control.encode(control.Nothing()) == b"\x80"
    assert Command.HELLO in REQUESTS
