"""Rows of MISSION: what a group had behind it comes to it again, to it alone, just once."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess


def drained(client: ternmq.sync.Client, topic: str, group: str = "g") -> list[int]:
    """Pull and acknowledge until nothing comes; return the offsets."""
    found: list[int] = []
    while batch := client.pull(topic, group=group, wait=0.3):
        found += [one.offset for one in batch]
        batch.ack()
    return found


def stored_at(client: ternmq.sync.Client, topic: str, offset: int) -> datetime:
    return client.get(topic, offset=offset).stored_at


@pytest.mark.row("O10")
def test_a_time_range_is_delivered_again_to_one_group_only(tmp_path: Path, topic: str) -> None:
    with BrokerProcess("dev", tmp_path) as broker:
        with ternmq.sync.connect(broker.url) as client:
            for at in range(3):
                client.send_many(topic, [b"%d" % at] * 4)
            assert drained(client, topic) == drained(client, topic, "other") == list(range(12))
            since, until = stored_at(client, topic, 4), stored_at(client, topic, 8)
            dry = client.replay(topic, "g", since=since, until=until, dry_run=True)
            assert dry == ternmq.Replayed(again=4)
            assert not client.pull(topic, group="g", wait=0.2)
            assert client.replay(topic, "g", since=since, until=until) == dry
        broker.restart(kill=True)
        with ternmq.sync.connect(broker.url) as client:
            batch = client.pull(topic, group="g", wait=10)
            assert [one.offset for one in batch] == [4, 5, 6, 7]
            assert [one.attempt for one in batch] == [1] * 4
            assert [(one.deliveries, one.maybe_redelivered) for one in batch] == [(2, True)] * 4
            batch.ack()
            assert drained(client, topic) == drained(client, topic, "other") == []
            future = since + timedelta(days=1)
            assert client.replay(topic, "g", since=future) == ternmq.Replayed()


@pytest.mark.row("O10")
def test_messages_are_delivered_again_by_their_ids(client: ternmq.sync.Client, topic: str) -> None:
    receipts = client.send_many(topic, [b"%d" % at for at in range(10)])
    elsewhere = client.send(f"{topic}-b", b"x")
    assert drained(client, topic) == list(range(10))
    ids = [receipts[at].id for at in (7, 2, 3)]
    told = client.replay(topic, "g", ids=[*ids, "1:1", elsewhere.id])
    assert (told.again, told.missing) == (3, ("1:1", elsewhere.id))
    assert drained(client, topic) == [2, 3, 7]
    sent = client.send(topic, b"11", id="order-7")
    client.send(f"{topic}-b", b"12", id="order-8")
    assert drained(client, topic) == [sent.offset]
    told = client.replay(topic, "g", ids=["order-7", "order-8"])  # of this topic only
    assert (told.again, told.missing) == (1, ("order-8",))
    assert drained(client, topic) == [sent.offset]


def test_offsets_are_delivered_again_and_what_was_not_read_is_not_touched(
    client: ternmq.sync.Client, topic: str
) -> None:
    client.send_many(topic, [b"x"] * 10)
    first = client.pull(topic, group="g", max_messages=6)
    first.ack()
    told = client.replay(topic, "g", offsets=range(4, 100))
    assert (told.again, told.unread) == (2, 4)
    assert sorted(drained(client, topic)) == list(range(4, 10))
    assert client.replay(topic, "g", offsets=[1, 3, 2, 8]).again == 4
    assert drained(client, topic) == [1, 2, 3, 8]
    with pytest.raises(ternmq.UnknownQueue):
        client.replay(topic, "g", offsets=[1], queue=1)
    with pytest.raises(ternmq.UnknownGroup):
        client.replay(topic, "nobody", offsets=[1])
    some: list[dict[str, Any]] = [{}, {"offsets": [1], "ids": ["1:1"]}, {"offsets": [-1]}]
    for wrong in some:
        with pytest.raises(ternmq.InvalidRequest):
            client.replay(topic, "g", **wrong)


def test_whoever_has_a_replayed_message_in_hand_no_longer_holds_it(
    client: ternmq.sync.Client, topic: str
) -> None:
    client.send_many(topic, [b"a", b"b"])
    first, second = client.pull(topic, group="g", max_messages=2)
    assert client.replay(topic, "g", offsets=[0]).again == 1
    with pytest.raises(ternmq.LeaseExpired):
        first.ack()
    second.ack()
    (again,) = client.pull(topic, group="g", wait=10)
    assert (again.offset, again.attempt, again.deliveries) == (0, 1, 2)
    again.ack()
    assert drained(client, topic) == []


def test_a_key_s_messages_come_again_in_order_and_before_its_new_ones(
    client: ternmq.sync.Client, topic: str
) -> None:
    client.admin.create_topic(topic, ordered=True)
    client.send_many(
        topic, [ternmq.Message(b"%d" % at, ordering_key="ab"[at % 2]) for at in range(8)]
    )
    assert len(drained(client, topic)) == 8
    client.send_many(topic, [ternmq.Message(b"new", ordering_key=key) for key in "ab"])
    assert client.replay(topic, "g", offsets=range(2, 8)).again == 6
    came = drained(client, topic)
    assert [offset for offset in came if offset % 2 == 0] == [2, 4, 6, 8]
    assert [offset for offset in came if offset % 2] == [3, 5, 7, 9]


def test_dead_letters_are_searched_recovered_downloaded_and_deleted(
    client: ternmq.sync.Client, topic: str
) -> None:
    """Row G10 but for REST, which there is none of yet."""
    client.send_many(topic, [ternmq.Message(b"%d" % at, key=f"order-{at}") for at in range(9)])
    batch = client.pull(topic, group="g", max_messages=9)
    for delivery in batch:
        delivery.reject("timeout" if delivery.offset % 3 else "no money")
    dead = list(client.deadletters.browse(topic, "g"))
    chosen = [one.offset for one in dead if one.reason == "no money"]  # searched
    assert chosen == [0, 3, 6]
    assert dead[4].message is not None
    assert (dead[4].message.key, dead[4].message.body) == ("order-4", b"4")  # downloaded
    dry = client.deadletters.redrive(topic, "g", [*chosen, 77], dry_run=True)
    assert [(one.offset, one.done) for one in dry] == [(0, True), (3, True), (6, True), (77, False)]
    assert len(list(client.deadletters.browse(topic, "g"))) == 9
    assert client.deadletters.redrive(topic, "g", [*chosen, 77]) == dry
    assert drained(client, topic) == chosen  # recovered
    assert client.deadletters.delete(topic, "g", [1, 2]) == []
    left = client.deadletters.redrive(topic, "g")
    assert [one.offset for one in left] == [4, 5, 7, 8]
    assert drained(client, topic) == [4, 5, 7, 8]
    assert list(client.deadletters.browse(topic, "g")) == []
    assert client.deadletters.redrive(topic, "g") == []


def test_dead_letters_come_back_no_faster_than_was_said(
    client: ternmq.sync.Client, topic: str
) -> None:
    client.send_many(topic, [b"x"] * 30)
    client.pull(topic, group="g", max_messages=30).reject(reason="no")
    began = time.monotonic()
    assert len(client.deadletters.redrive(topic, "g", rate=50)) == 30
    assert time.monotonic() - began >= 0.49  # 5 come at once, every tenth of a second 5 more
    assert drained(client, topic) == list(range(30))
    with pytest.raises(ternmq.InvalidRequest, match="rate"):
        client.deadletters.redrive(topic, "g", rate=0)
