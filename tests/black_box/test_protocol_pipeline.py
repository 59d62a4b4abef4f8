"""What a pipeline asks, by a client that was written from docs/protocol alone (``stranger.py``)."""

from __future__ import annotations

import struct
from itertools import count

import pytest

from tests.black_box import stranger
from tests.black_box.stranger import (
    APP_PUT,
    GROUP_COMMIT,
    GROUP_LIST,
    HOLD_DELETE,
    HOLD_LIST,
    HOLD_PUT,
    JOURNAL_CATALOG,
    JOURNAL_READ,
    QUEUE_RANGES,
    TOPIC_CREATE,
    JournalPage,
    Refused,
)

pytestmark = pytest.mark.row("A8")
_numbers = count(1)

MESSAGES, CONFIG, JOINED, STATE = 6, 13, 14, 5


@pytest.fixture
def topic(connect):
    name = f"pipe-{next(_numbers)}"
    with connect() as maker:
        maker.control(TOPIC_CREATE, topic=name, spec={"name": name})
    return name


def journal(client, position=0, **more):
    """Return every record from a position on, and the last page."""
    found = []
    while True:
        page = JournalPage(client.ask(JOURNAL_READ, stranger.journal_body(position, **more)))
        assert page.position == position
        found += page.records
        if page.next == position:
            return found, page
        position = page.next


def test_ranges(connect, topic):
    client = connect()
    client.send(topic, [b"%d" % row for row in range(5)], 21, 0)
    body = [{"topic": topic, "time_us": 0, "starts": [{"queue": 0, "offset": 1, "max_bytes": 1}]},
            {"topic": "nothing"}]  # fmt: skip
    found, missing = client.control(QUEUE_RANGES, topics=body)["topics"]
    assert missing == {"topic": "nothing", "number": 0, "queues": []}
    (full,) = found["queues"]
    assert (full["first"], full["next"], full["at"], full["start"]) == (0, 5, 0, 1)
    assert full["stop"] == 5, "one record at least"
    assert full["stop_bytes"] == full["bytes"] > 0
    (unasked,) = client.control(QUEUE_RANGES, topics=[{"topic": topic}])["topics"][0]["queues"]
    assert unasked == {"first": 0, "next": 5}


def test_a_group_that_keeps_its_place_itself(connect, topic):
    client = connect()
    client.send(topic, [b"%d" % row for row in range(5)], 22, 0)

    def commit(offset):
        return client.control(
            GROUP_COMMIT, topic=topic, group="spark.x", places=[{"queue": 0, "offset": offset}]
        )

    assert commit(3) == {"places": [{"queue": 0, "offset": 3}], "created": True}
    assert commit(1) == {"places": [{"queue": 0, "offset": 3}]}
    with pytest.raises(Refused) as caught:
        commit(6)
    assert caught.value.code == 101


def test_holds(connect, topic):
    client = connect()
    placed = client.control(HOLD_PUT, name=topic, position=8, note="for a test")
    assert placed["position"] == 8
    assert client.control(HOLD_PUT, name=topic, position=0)["position"] == 8
    assert client.control(HOLD_PUT, name=topic, position=0, back=True)["position"] == 0
    (hold,) = [one for one in client.control(HOLD_LIST)["holds"] if one["name"] == topic]
    assert (hold["position"], hold["note"]) == (0, "for a test")
    assert hold["lag_bytes"] > 0
    assert topic in {one["name"] for one in client.control(GROUP_LIST).get("holds", [])}
    assert client.control(HOLD_DELETE, name=topic) == {}
    assert client.control(HOLD_DELETE, name=topic) == {}


def test_the_journal(connect, topic):
    client = connect()
    client.control(APP_PUT, app=f"app-{topic}", grants=[])
    client.send(topic, [b"a body of the journal"] * 300, 23, 0)
    records, last = journal(client)
    assert [record[0] for record in records] == sorted({record[0] for record in records})
    assert any(
        kind == MESSAGES and b"a body of the journal" in body for _, kind, _, body in records
    )
    for _, kind, made, body in records:
        if kind == CONFIG:
            told = stranger.unpack(body[8 : 8 + struct.unpack_from("<I", body)[0]])
            assert made == (told["type"] == "app-put")
            assert not told.get("hash")
            assert not told.get("salt")
        elif kind == JOINED:
            told = stranger.unpack(body[8 : 8 + struct.unpack_from("<I", body)[0]])
            assert made
            assert len(told["client"]) <= 8
        elif kind == STATE:
            assert made
            assert not body
    light, _ = journal(client, flags=1)
    small = [body for _, kind, made, body in light if kind == MESSAGES and made]
    assert small
    assert not any(b"a body of the journal" in body for body in small)
    for position in (last.durable + 1_000_000, 8):
        with pytest.raises(Refused) as caught:
            client.ask(JOURNAL_READ, stranger.journal_body(position))
        assert caught.value.code == 101


def test_a_reader_of_the_journal_is_woken(connect, topic):
    reader, producer = connect(), connect()
    _, last = journal(reader)
    waiting = reader.begin(JOURNAL_READ, stranger.journal_body(last.next, wait_ms=20_000))
    producer.send(topic, [b"wake up"], 24, 0)
    position = last.next
    page = JournalPage(reader.answer(JOURNAL_READ, waiting))
    assert page.position == position
    assert page.next > position


def test_names_in_pages(connect, topic):
    client = connect()
    after, pages = "", 0
    topics: dict[int, str] = {}
    apps: list[str] = []
    while True:
        page = client.control(JOURNAL_CATALOG, position=0, after=after, limit=2)
        topics |= {one["number"]: one["name"] for one in page.get("topics", [])}
        apps += page.get("apps", [])
        after = page.get("next", "")
        pages += 1
        if not after:
            break
    assert topic in topics.values()
    assert "admin" in apps
    assert len(set(apps)) == len(apps)
    assert pages > 1


def test_who_may(connect, topic):
    admin = connect()
    for name, right, code in (("reads", "consume", 151), ("audits", "audit", None)):
        app = f"{name}-{topic}"
        token = admin.control(APP_PUT, app=app, grants=[{"right": right}])["token"]
        client = connect(app=app, token=token)
        asks = (
            lambda one=client: one.ask(JOURNAL_READ, stranger.journal_body(0)),
            lambda one=client: one.control(JOURNAL_CATALOG, position=0),
            lambda one=client: one.control(HOLD_LIST),
        )
        for ask in asks:
            if code is None:
                ask()
            else:
                with pytest.raises(Refused) as caught:
                    ask()
                assert caught.value.code == code
