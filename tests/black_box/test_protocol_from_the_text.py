"""A client that was written from docs/protocol alone talks to a broker (``stranger.py``)."""

from __future__ import annotations

import ast
import struct
import time
from itertools import count
from pathlib import Path

import pytest

from tests.black_box import stranger
from tests.black_box.conftest import TOKEN
from tests.black_box.stranger import (
    ANSWER,
    APP_PUT,
    BYE,
    CANCEL,
    EXTEND,
    GROUP_JOIN,
    ONE_WAY,
    PING,
    PULL,
    READ,
    SEND,
    SETTLE,
    TOPIC_CREATE,
    TOPIC_LIST,
    TRANSACTION_ABORT,
    TRANSACTION_COMMIT,
    TRANSACTION_LIST,
    Delivery,
    Refused,
    Stranger,
)

pytestmark = pytest.mark.row("A8")
_numbers = count(1)


@pytest.fixture
def topic(connect):
    """Return the name of a topic that the group ``billing`` consumes."""
    name = f"orders-{next(_numbers)}"
    with connect() as maker:
        assert maker.control(TOPIC_CREATE, topic=name, spec={"name": name}) == {}
        joined = maker.control(GROUP_JOIN, topic=name, group="billing")
        assert joined["created"] is True
        assert joined["queues"] == 1
        maker.ask(BYE)
    return name


def test_it_uses_nothing_of_ternmq():
    tree = ast.parse(Path(stranger.__file__).read_text(encoding="utf-8"))
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [one.name for one in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported == {"__future__", "socket", "struct", "typing"}


def test_a_message_is_sent_pulled_and_settled(broker):
    name = f"orders-{next(_numbers)}"
    with Stranger(broker.address) as client:
        welcome = client.hello(app="admin", token=TOKEN, client="5f2b1c0de9a84711")
        assert welcome["version"] == 1
        assert welcome["session"] > 0
        assert welcome["resumed"] is False
        assert welcome["frame_bytes"] > welcome["body_bytes"] > 0
        client.control(TOPIC_CREATE, topic=name, spec={"name": name, "queues": 1})
        client.control(GROUP_JOIN, topic=name, group="billing", start="earliest")
        before = time.time()
        assert client.send(name, [b"hello", b"", b"\0\xff" * 1000], 77, 0) == 0
        assert client.send(name, [b"more"], 77, 3) == 3
        got = client.pull(name, "billing")
        assert got.rows == {0: b"hello", 1: b"", 2: b"\0\xff" * 1000, 3: b"more"}
        assert {(attempt, deliveries) for _, _, attempt, deliveries in got.runs} == {(1, 1)}
        assert got.until_us - got.now_us > 10_000_000
        assert abs(got.now_us / 1e6 - before) < 60
        until_us, now_us = struct.unpack(
            "<qq", client.ask(EXTEND, stranger.extend_body(name, "billing", got, 60_000_000))
        )
        assert until_us == now_us + 60_000_000
        assert client.settle(name, "billing", got) == (4, 0)
        assert client.pull(name, "billing").lease == 0
        (topics,) = client.control(TOPIC_LIST, names=[name])["topics"]
        assert topics["queues"] == [{"first": 0, "next": 4}]
        assert topics["groups"] == ["billing"]
        assert client.ask(BYE) == b""
        with pytest.raises(Refused) as caught:
            client.pull(name, "billing")
        assert caught.value.code == 113


def test_the_same_bytes_again_are_a_duplicate(connect, topic):
    client = connect()
    body = stranger.send_body(topic, stranger.make_batch(topic, [b"once"], 5, 0))
    first = client.ask(SEND, body)
    again = client.ask(SEND, body)
    assert struct.unpack("<QIIIIII", first) == (
        0,
        *struct.unpack("<QII", first[:16])[1:],
        1,
        0,
        0,
        0,
    )
    assert struct.unpack("<QIIIIII", again)[4] & 1
    assert again[:20] == first[:20]
    assert client.pull(topic, "billing").rows == {0: b"once"}


def test_a_transaction_is_prepared_and_committed_once(connect, topic):
    client = connect()
    writer = f"{topic} ü"
    one = client.prepare(topic, [b"a", b"b"], 21, 0, writer, 2**64 - 1)
    two = client.prepare(topic, [b"c"], 21, 2, writer, 2**64 - 1, "1/0")
    dropped = client.prepare(topic, [b"no"], 21, 3, writer, 2**64 - 1, "1/1")
    assert client.prepare(topic, [b"a", b"b"], 21, 0, writer, 2**64 - 1) == (one[0], True)
    assert dropped[0] > two[0] > one[0]
    client.send(topic, [b"between"], 22, 0)
    listed = client.control(TRANSACTION_LIST, writer=writer)
    (undecided,) = listed["undecided"]
    assert (undecided["batches"], undecided["rows"], undecided["topics"]) == (3, 4, [topic])
    assert undecided["expires_us"] - undecided["opened_us"] == 3_600_000_000
    assert client.pull(topic, "billing").rows == {0: b"between"}
    commit = {"writer": writer, "batch_id": 2**64 - 1, "ids": [two[0], one[0]], "digest": 2**64 - 1}
    assert client.control(TRANSACTION_COMMIT, **commit) == {"rows": 3}
    assert client.control(TRANSACTION_COMMIT, **commit) == {"rows": 3, "repeated": True}
    got = client.pull(topic, "billing")
    assert got.rows == {1: b"c", 2: b"a", 3: b"b"}
    for code, command, fields in (
        (162, TRANSACTION_COMMIT, commit | {"digest": 5}),
        (161, TRANSACTION_ABORT, {"writer": writer, "batch_id": 2**64 - 1}),
        (160, TRANSACTION_COMMIT, commit | {"batch_id": 3}),
    ):
        with pytest.raises(Refused) as caught:
            client.control(command, **fields)
        assert caught.value.code == code
    with pytest.raises(Refused) as caught:
        client.prepare(topic, [b"late"], 21, 9, writer, 2**64 - 1)
    assert caught.value.code == 161
    (known,) = client.control(TRANSACTION_LIST, writer=writer)["writers"]
    assert (known["highest"], known["digest"], known["rows"]) == (2**64 - 1, 2**64 - 1, 3)


def test_a_transaction_that_is_rolled_back_may_be_prepared_anew(connect, topic):
    client = connect()
    old, _ = client.prepare(topic, [b"a"], 23, 0, topic, 0)
    assert client.control(TRANSACTION_ABORT, writer=topic, batch_id=0) == {}
    assert client.control(TRANSACTION_ABORT, writer=topic, batch_id=0) == {"repeated": True}
    with pytest.raises(Refused) as caught:
        client.control(TRANSACTION_COMMIT, writer=topic, batch_id=0, ids=[old], digest=1)
    assert caught.value.code == 161
    new, _ = client.prepare(topic, [b"a"], 23, 1, topic, 0)
    assert client.control(TRANSACTION_COMMIT, writer=topic, batch_id=0, ids=[new], digest=1) == {
        "rows": 1
    }
    assert client.pull(topic, "billing").rows == {0: b"a"}


def test_a_settle_of_some_rows_and_what_comes_again(connect, topic):
    client = connect()
    client.send(topic, [b"%d" % row for row in range(10)], 6, 0)
    got = client.pull(topic, "billing")
    body = struct.pack(
        "<IIQqIHBBB7x QQ QQ", got.epoch, got.queue, got.lease, 0, 2, 5, 1, len(topic), 7, 0, 3, 8, 9
    ) + stranger.names(topic, "billing", "dirty")
    assert struct.unpack_from("<II", client.ask(SETTLE, body)) == (4, 0)
    assert struct.unpack_from("<II", client.ask(SETTLE, body)) == (4, 0), "as if asked once"
    with pytest.raises(Refused) as caught:
        client.ask(SETTLE, body.replace(b"dirty", b"dusty"))
    assert caught.value.code == 120
    again = client.pull(topic, "billing", wait_ms=5000)
    assert set(again.rows) <= {0, 1, 2, 8}
    assert {(attempt, deliveries) for _, _, attempt, deliveries in again.runs} == {(2, 2)}
    assert again.failures == dict.fromkeys(again.rows, (0, "dirty"))
    assert client.settle(topic, "billing", got)[0] == 6


def test_read(connect, topic):
    client = connect()
    client.send(topic, [b"%d" % row for row in range(5)], 7, 0)
    body = client.ask(READ, stranger.read_body(topic, 0, 2))
    _, queue, start, stop, first, following = struct.unpack_from("<IIQQQQ", body)
    assert (queue, start, first, following) == (0, 2, 0, 5)
    rows = stranger.read_records(topic, body[40:])
    assert [rows[offset] for offset in range(start, stop)] == [b"2", b"3", b"4"]


def test_a_waiting_pull_holds_nothing_up_and_is_woken(connect, topic):
    consumer, producer = connect(), connect()
    waiting = consumer.begin(PULL, stranger.pull_body(topic, "billing", wait_ms=20_000))
    (now_us,) = struct.unpack("<q", consumer.ask(PING))
    assert now_us > 1_600_000_000_000_000
    producer.send(topic, [b"wake up"], 8, 0)
    got = Delivery(topic, consumer.answer(PULL, waiting))
    assert got.rows == {0: b"wake up"}


def test_a_waiting_pull_is_answered_when_its_time_is_over_or_cancelled(connect, topic):
    client = connect()
    assert client.pull(topic, "billing", wait_ms=50).lease == 0
    waiting = client.begin(PULL, stranger.pull_body(topic, "billing", wait_ms=20_000))
    cancel = client.begin(CANCEL, struct.pack("<Q", waiting))
    told = {}
    for _ in range(2):
        command, flags, id_, body = client.next()
        assert flags == ANSWER
        told[id_] = (command, body)
    assert Delivery(topic, told[waiting][1]).lease == 0
    assert told[cancel] == (CANCEL, b"")


def test_one_way(connect, topic):
    client = connect()
    batch = stranger.make_batch(topic, [b"no answer"], 9, 0)
    client.begin(SEND, stranger.send_body(topic, batch), ONE_WAY)
    client.begin(SEND, b"nonsense", ONE_WAY)
    client.ask(PING)
    assert client.pull(topic, "billing", wait_ms=5000).rows == {0: b"no answer"}


def test_a_session_is_come_back_to(connect, topic):
    first = connect(hello=False)
    welcome = first.hello(app="admin", token=TOKEN, client="another-one")
    first.send(topic, [b"mine"], 11, 0)
    mine = first.pull(topic, "billing", wait_ms=5000)
    first.socket.close()
    back = connect(hello=False)
    again = back.hello(app="admin", token=TOKEN, client="another-one", session=welcome["session"])
    assert again["resumed"] is True
    assert again["session"] == welcome["session"]
    assert back.settle(topic, "billing", mine) == (len(mine.rows), 0)
    thief = connect(hello=False)
    other = thief.hello(app="admin", token=TOKEN, client="a-thief", session=welcome["session"])
    assert other["resumed"] is False
    with pytest.raises(Refused) as caught:
        connect(client="a-thief", session=welcome["session"], auxiliary=True)
    assert caught.value.code == 113
    keeper = connect(client="another-one", session=welcome["session"], auxiliary=True)
    back.send(topic, [b"kept"], 11, 1)
    kept = back.pull(topic, "billing", wait_ms=5000)
    keeper.ask(EXTEND, stranger.extend_body(topic, "billing", kept, 60_000_000))
    assert keeper.settle(topic, "billing", kept) == (1, 0)


def test_refusals_have_codes_and_the_connection_goes_on(connect, topic):
    client = connect()
    for command, body, code in (
        (SEND, stranger.send_body("nowhere", stranger.make_batch("nowhere", [b"x"], 1, 0)), 110),
        (SEND, stranger.send_body(topic, stranger.make_batch("other", [b"x"], 1, 0)), 103),
        (SEND, stranger.send_body(topic, stranger.make_batch(topic, [b"x"], 1, 0), 9), 111),
        (PULL, stranger.pull_body(topic, "nobody"), 112),
        (PULL, stranger.pull_body(topic, "billing")[:-1], 101),
        (READ, stranger.read_body(topic, 7, 0), 111),
        (TOPIC_CREATE, stranger.pack({"topic": topic, "spec": {"name": topic}}), 114),
        (200, b"a command of tomorrow", 153),
        (PING, b"?", 101),
    ):
        with pytest.raises(Refused) as caught:
            client.ask(command, body)
        assert caught.value.code == code, caught.value
        assert caught.value.flags == 0
    client.ask(PING)


def test_an_app_may_do_what_it_was_granted(connect, topic):
    admin = connect()
    token = admin.control(
        APP_PUT, app="shop", grants=[{"right": "produce", "topic": "orders-*"}], owner="team shop"
    )["token"]
    assert len(token) >= 16
    shop = connect(app="shop", token=token)
    shop.send(topic, [b"mine"], 12, 0)
    with pytest.raises(Refused) as caught:
        shop.pull(topic, "billing")
    assert caught.value.code == 151
    for wrong in ({"token": token + "x"}, {"token": ""}, {"app": "nobody"}):
        with pytest.raises(Refused) as caught:
            connect(**({"app": "shop", "token": token} | wrong))
        assert caught.value.code == 150


def test_newer_fields_and_versions(connect):
    client = connect(hello=False)
    welcome = client.hello(
        app="admin", token=TOKEN, client="newer", versions=[3, 2, 1], colour={"deep": [1, None]}
    )
    assert welcome["version"] == 1
    too_new = connect(hello=False)
    with pytest.raises(Refused) as caught:
        too_new.hello(app="admin", token=TOKEN, client="newest", versions=[2])
    assert caught.value.code == 302
