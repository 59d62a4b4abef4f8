"""Every commit looked at every read that waited, whatever topic it was about."""

from __future__ import annotations

import pytest

from ternmq.broker.query.messages import Queries
from ternmq.model.errors import UnknownTopic
from ternmq.record.batch.batch import Row
from ternmq.testing import InProcessBroker
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from tests.black_box.process import wait_until
from tests.integration.raw import RawClient

FOLLOWERS = 50


def follow(client: RawClient, topic: str, queue: int = 0, offset: int = 0) -> int:
    asked = bodies.Read(topic, queue, offset, 10, 0, 300_000)
    return client.ask(Command.READ, bodies.pack_read(asked))


def test_a_commit_wakes_those_of_its_queue(
    timed: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    read = Queries.read

    def counted(self: Queries, topic: str, *args: int) -> object:
        looked.append(topic)
        return read(self, topic, *args)

    with RawClient(timed.port) as client, RawClient(timed.port) as sender:
        client.create("quiet", queues=2)
        client.create("busy")
        monkeypatch.setattr(Queries, "read", counted)
        ids = [follow(client, "quiet", 1) for _ in range(FOLLOWERS)]
        other = follow(client, "quiet", 0)
        last = follow(client, "busy", 0, 3)
        wait_until(lambda: len(looked) == FOLLOWERS + 2, "all wait")  # a PING overtakes reads
        looked.clear()
        for number in range(3):
            sender.send("busy", f"{number}")
            assert set(looked) <= {"busy"}
        sender.send("busy", "3")
        assert bodies.unpack_rows(client.wait(last)).start == 3
        assert set(looked) == {"busy"}
        sender.send("quiet", "a", queue=1)
        for id_ in ids:
            assert bodies.unpack_rows(client.wait(id_)).stop == 1
        assert looked.count("quiet") == FOLLOWERS
        sender.send("quiet", "b", queue=0)
        assert bodies.unpack_rows(client.wait(other)).stop == 1


def test_followers_hear_that_their_topic_was_deleted(timed: InProcessBroker) -> None:
    with RawClient(timed.port) as client:
        client.create("orders")
        waiting = follow(client, "orders")
        client.manage(Command.TOPIC_DELETE, control.TopicDelete(topic="orders"), control.Nothing)
        with pytest.raises(UnknownTopic):
            client.wait(waiting)


def test_what_is_on_its_way_to_the_disk_wakes_who_comes_now(timed: InProcessBroker) -> None:
    with RawClient(timed.port) as client:
        client.create("orders")
        for number in range(200):
            frames = client.session.ask(
                Command.SEND,
                bodies.pack_send("orders", None, client.batch("orders", [Row(b"x")])),
            )[1]
            id_, read = client.session.ask(
                Command.READ, bodies.pack_read(bodies.Read("orders", 0, number, 1, 0, 300_000))
            )
            client.socket.sendall(frames + read)
            assert bodies.unpack_rows(client.wait(id_)).start == number
