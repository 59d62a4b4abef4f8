"""Readers are served by a broker that follows, and go on wherever they can."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import Any, Self

import pytest

import ternmq
import ternmq.sync
from ternmq.client.connection import replica as replica_module
from ternmq.client.connection.replica import ReplicaSession
from ternmq.model.errors import (
    CannotConnect,
    InvalidRequest,
    MessageNotFound,
    NotPrimary,
    OffsetExpired,
    UnknownCommand,
    UnknownQueue,
    UnknownTopic,
)
from ternmq.testing import Cluster, broker, cluster
from ternmq.wire import bodies, control
from ternmq.wire.commands import TABLE, Command
from tests.black_box.process import wait_until
from tests.integration.raw import Closed, RawClient, records

PATIENCE_S = 30.0
ANSWERED = {
    Command.HELLO, Command.PING, Command.BYE, Command.CANCEL, Command.ROUTES, Command.READ,
    Command.QUEUE_RANGES, Command.TOPIC_LIST, Command.GROUP_LIST, Command.FIND, Command.OFFSET_AT,
    Command.FAILED_LIST, Command.FAILED_QUERY, Command.SCHEDULE_LIST, Command.SCHEDULE_HOURS,
}  # fmt: skip


@pytest.fixture
def pair() -> Iterator[Cluster]:
    with cluster(replicas=1, failover="operator") as one:
        one.wait_for_copies(2)
        yield one


def port_of(pair: Cluster, name: str) -> int:
    (one,) = [one for one in pair.brokers if one.name == name]
    return int(one.url.rpartition(":")[2])


def shown(pair: Cluster) -> None:
    """Let the primary tell how far it is committed: it does so four times a second."""
    pair.clock.advance(seconds=1)


def values(found: Any) -> list[Any]:
    return [one.value for one in found]


def served_by(client: ternmq.sync.Client) -> str:
    """Return the broker that answers reads from a replica."""
    session = client.reach()[1]._replica
    assert session is not None
    welcome = session.welcome
    assert welcome is not None
    return welcome.broker


def test_messages_are_read_from_a_broker_that_follows(pair: Cluster) -> None:
    with ternmq.sync.connect(pair.url) as client:
        assert client.behind() is None
        for number in range(20):
            client.send("orders", number, key=f"k{number % 3}", id=f"own-{number}")
        shown(pair)
        assert values(client.read("orders", from_="replica")) == list(range(20))
        assert served_by(client) == "b"
        assert client.behind() == timedelta(0)
        assert values(client.read("orders", start=5, stop=8, from_="replica")) == [5, 6, 7]
        since = datetime(2020, 1, 1, tzinfo=UTC)
        assert len(list(client.read("orders", start=since, from_="replica"))) == 20
        assert client.get("orders", "own-7", from_="replica").value == 7
        assert client.get("orders", offset=9, from_="replica").value == 9
        found = client.find("orders", key="k1", from_="replica")
        assert values(found) == [19, 16, 13, 10, 7, 4, 1]
        assert found == client.find("orders", key="k1")
        stats = client.stats()
        assert (stats.connections_open, stats.connections_opened) == (2, 2)
        with pytest.raises(MessageNotFound):
            client.get("orders", "own-20", from_="replica")
        with pytest.raises(UnknownTopic):
            list(client.read("none", from_="replica"))
        with pytest.raises(UnknownQueue):
            list(client.read("orders", queue=3, from_="replica"))
        with pytest.raises(InvalidRequest, match="it is one of primary, replica"):
            client.read("orders", from_="anybody")  # type: ignore[arg-type]


def test_they_are_read_while_the_primary_is_gone_and_that_is_said(pair: Cluster) -> None:
    with ternmq.sync.connect(pair.url) as client:
        for number in range(5):
            client.send("orders", number)
        shown(pair)
        pair.kill()
        pair.clock.advance(minutes=10)
        assert [one.role for one in pair.brokers] == ["", "member"]
        assert values(client.read("orders", from_="replica")) == [0, 1, 2, 3, 4]
        behind = client.behind()
        assert behind is not None
        assert timedelta(minutes=10) <= behind < timedelta(minutes=11)
    late = ternmq.sync.connect(pair.url)  # it never sees the primary
    assert values(late.read("orders", from_="replica")) == [0, 1, 2, 3, 4]
    assert late.get("orders", offset=3, from_="replica").value == 3
    late.close()


def test_an_address_of_the_primary_is_enough(pair: Cluster) -> None:
    with ternmq.sync.connect(f"ternmq://127.0.0.1:{port_of(pair, 'a')}") as client:
        client.send("orders", 1)
        shown(pair)
        assert values(client.read("orders", from_="replica")) == [1]
        assert served_by(client) == "b"
    late = ternmq.sync.connect(f"ternmq://127.0.0.1:{port_of(pair, 'a')}")
    assert values(late.read("orders", from_="replica")) == [1]
    assert served_by(late) == "b"  # it asked the primary for the routes
    late.close()


class Following:
    """A reader that follows a topic, in a thread, for as long as a ``with`` block."""

    def __init__(self, client: ternmq.sync.Client, start: int = 0) -> None:
        self.seen: SimpleQueue[Any] = SimpleQueue()
        self.client = client
        self._start = start
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        try:
            for one in self.client.read("orders", start=self._start, follow=True, from_="replica"):
                self.seen.put(one.value)
        except ternmq.TernMQError as error:
            self.seen.put(error)

    def next(self) -> Any:
        return self.seen.get(timeout=PATIENCE_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def follows(pair: Cluster) -> Iterator[tuple[ternmq.sync.Client, Following]]:
    """A client that sends, and a reader that has read one message from the replica."""
    with ternmq.sync.connect(pair.url) as client:
        client.send("orders", "first")
        shown(pair)
        with Following(ternmq.sync.connect(pair.url)) as reader:
            assert reader.next() == "first"
            assert served_by(reader.client) == "b"
            yield client, reader


def test_a_reader_that_follows_sees_what_comes(
    pair: Cluster, follows: tuple[ternmq.sync.Client, Following]
) -> None:
    client, reader = follows
    for number in range(10):
        client.send("orders", number)
        shown(pair)
        assert reader.next() == number


def test_it_goes_on_when_the_replica_becomes_the_primary(
    pair: Cluster, follows: tuple[ternmq.sync.Client, Following]
) -> None:
    client, reader = follows
    pair.switch(to="b")
    client.send("orders", "second")
    shown(pair)
    assert reader.next() == "second"
    pair.kill("b")
    pair.promote("a")
    pair.clock.advance(seconds=5)
    assert pair.primary.name == "a"
    client.send("orders", "third")
    shown(pair)
    assert reader.next() == "third"


def test_it_goes_on_at_the_primary_when_the_replica_is_gone_and_comes_back(
    pair: Cluster,
    follows: tuple[ternmq.sync.Client, Following],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, reader = follows
    pair.kill("b")
    pair.clock.advance(seconds=5)  # the primary goes on without it
    client.send("orders", "second")
    assert reader.next() == "second"
    assert served_by(reader.client) == "a"
    assert reader.client.behind() is None
    monkeypatch.setattr(replica_module, "SEEK_S", 0.0)
    pair.start("b")
    pair.wait_for_copies(2)
    deadline = time.monotonic() + PATIENCE_S
    number = 0
    while served_by(reader.client) == "a":
        assert time.monotonic() < deadline
        client.send("orders", number)
        shown(pair)
        assert reader.next() == number
        number += 1
    assert served_by(reader.client) == "b"
    client.send("orders", "last")
    shown(pair)
    assert reader.next() == "last"


def test_rows_that_one_broker_had_and_another_lacks_are_asked_for_at_the_primary(
    pair: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range is not cut short, because the replica at which it goes on is behind."""
    monkeypatch.setattr("ternmq.client.consumer.reading._LACKING_MS", 0)  # the clock stands still
    with ternmq.sync.connect(pair.url) as client:
        for number in range(3):
            client.send("orders", number)
        shown(pair)
        place = pair._brokers.place("b")
        assert place.node is not None
        assert place.node._replica is not None
        monkeypatch.setattr(place.node._replica.applying, "look", lambda *_: None)
        for number in range(3, 3000):
            client.send_soon("orders", number)
        client.flush()
        take, takes = place.node._showing.take, threading.Event()

        def read(transport: asyncio.Transport, received: bytes) -> bool:
            return takes.is_set() and take(transport, received)

        monkeypatch.setattr(place.node._porch, "_read", read)
        found = iter(client.read("orders", from_="replica"))
        assert next(found).value == 0
        assert served_by(client) == "a"  # which has all rows
        takes.set()
        session = client.reach()[1]._replica
        assert session is not None
        monkeypatch.setattr(session, "_sought_at", -1e9)
        served: set[str] = set()
        elsewhere = session.elsewhere

        async def noted() -> bool:
            assert session.welcome is not None
            served.add(session.welcome.broker)
            return await elsewhere()

        monkeypatch.setattr(session, "elsewhere", noted)
        assert values(found) == list(range(1, 3000))
        assert served == {"b"}  # which was asked in between, and has three
        assert served_by(client) == "a"


def test_a_broker_without_replicas_answers_itself() -> None:
    with broker() as one, ternmq.sync.connect(one.url) as client:
        client.send("orders", 1)
        assert values(client.read("orders", from_="replica")) == [1]
        assert client.get("orders", offset=0, from_="replica").value == 1
        assert client.behind() is None
    with cluster(replicas=0) as alone, ternmq.sync.connect(alone.url) as client:
        client.send("orders", 1)
        assert values(client.read("orders", from_="replica")) == [1]
        assert client.behind() is None


async def test_in_an_event_loop(pair: Cluster) -> None:
    async with ternmq.connect(pair.url) as client:
        await client.send("orders", 1, key="k")
        await asyncio.to_thread(shown, pair)
        assert [one.value async for one in client.read("orders", from_="replica")] == [1]
        assert (await client.get("orders", offset=0, from_="replica")).value == 1
        assert [one.value for one in await client.find("orders", key="k", from_="replica")] == [1]
        many = [client.get("orders", offset=0, from_="replica") for _ in range(20)]
        assert [one.value for one in await asyncio.gather(*many)] == [1] * 20
        assert client.stats().connections_open == 2
    async with ternmq.connect(pair.url) as client:
        many = [client.get("orders", offset=0, from_="replica") for _ in range(20)]
        assert [one.value for one in await asyncio.gather(*many)] == [1] * 20
        assert client.stats().connections_open == 2


async def test_nobody_who_answers_is_an_error(pair: Cluster) -> None:
    client = ternmq.connect(pair.url, timeout=1)
    await asyncio.to_thread(pair.kill, "b")
    await asyncio.to_thread(pair.kill, "a")
    with pytest.raises(CannotConnect):
        await client.get("orders", offset=0, from_="replica")
    await client.close()


# -- the protocol ---------------------------------------------------------------------------------


@pytest.fixture
def reader(pair: Cluster) -> Iterator[RawClient]:
    """A connection to the broker that follows, which has a topic with three messages."""
    with RawClient(port_of(pair, "a")) as client:
        client.create("t")
        client.send("t", "one", "two")
        client.send("t", "three")
    shown(pair)
    with RawClient(port_of(pair, "b"), reads=True) as one:
        yield one


def test_only_who_says_so_is_served(pair: Cluster, reader: RawClient) -> None:
    assert reader.welcome.follows
    assert reader.welcome.broker == "b"
    assert not reader.welcome.create_topics
    with pytest.raises(NotPrimary, match="b does not lead; the primary is a at"):
        RawClient(port_of(pair, "b"))
    with pytest.raises(NotPrimary):
        RawClient(port_of(pair, "b"), reads=True, session=reader.number, auxiliary=True)
    with RawClient(port_of(pair, "a"), reads=True) as at_the_primary:
        assert not at_the_primary.welcome.follows
        assert at_the_primary.read("t", 0).stop == 3


def test_a_session_there_is_of_one_connection(pair: Cluster, reader: RawClient) -> None:
    again = RawClient(port_of(pair, "b"), reads=True, session=reader.number, client=reader.client)
    assert not again.welcome.resumed
    assert again.number != reader.number
    assert reader.read("t", 0).stop == 3  # the other one goes on
    again.bye()
    assert reader.read("t", 0).stop == 3


def test_rows_are_answered_as_by_the_primary(pair: Cluster, reader: RawClient) -> None:
    with RawClient(port_of(pair, "a")) as primary:
        for offset in range(4):
            assert reader.read("t", offset) == primary.read("t", offset)
    (one, two) = records(reader.read("t", 0).records)
    assert (one.first_offset, two.first_offset) == (0, 2)
    with pytest.raises(UnknownTopic):
        reader.read("none", 0)


@pytest.mark.parametrize("command", sorted(TABLE.keys() - ANSWERED), ids=lambda one: one.name)
def test_what_could_change_anything_is_refused(reader: RawClient, command: Command) -> None:
    with pytest.raises(NotPrimary, match="b does not lead; the primary is a at"):
        reader.call(command, b"\x80")
    assert reader.read("t", 0).stop == 3


def test_what_is_not_known_is_refused_as_by_the_primary(reader: RawClient) -> None:
    frame = bytes([16, 0, 0, 0, 0x54, 250, 0, 0]) + (77).to_bytes(8, "little")
    reader.session._asked[77] = 250  # type: ignore[assignment]
    reader.socket.sendall(frame)
    with pytest.raises(UnknownCommand):
        reader.wait(77)


def behind(reader: RawClient) -> list[int]:
    """Return what the pushes since the last call said."""
    pushes, reader.pushes = reader.pushes, []
    return [
        control.decode_answer(one.body, control.Behind).behind_us
        for one in pushes
        if one.command is Command.BEHIND
    ]


def test_it_is_said_before_an_answer_how_far_it_is_behind(pair: Cluster, reader: RawClient) -> None:
    assert behind(reader) == []  # not before the first request
    reader.call(Command.PING)
    assert behind(reader) == [0]
    pair.kill("a")
    pair.clock.advance(minutes=1)
    told: list[int] = []

    def told_again() -> bool:  # 10 ms after the last time
        reader.read("t", 0)
        told.extend(behind(reader))
        return bool(told)

    wait_until(told_again, "it is told again")
    assert 60_000_000 <= told[0] < 62_000_000


def test_the_pushes_of_many_answers_are_few(reader: RawClient) -> None:
    asked = bodies.pack_read(bodies.Read("t", 0, 0, 1, 0, 0))
    ids = [reader.ask(Command.READ, asked) for _ in range(200)]
    for one in ids:
        reader.wait(one)
    assert 1 <= len(behind(reader)) < 100


def test_a_read_waits_for_rows(pair: Cluster, reader: RawClient) -> None:
    asked = bodies.pack_read(bodies.Read("t", 0, 3, 10, 0, 60_000))
    waiting = [reader.ask(Command.READ, asked) for _ in range(3)]
    cancelled = reader.ask(Command.READ, asked)
    reader.call(Command.CANCEL, bodies.pack_cancel(cancelled))
    assert bodies.unpack_rows(reader.wait(cancelled)).stop == 3
    assert not any(one in reader.answers for one in waiting)
    with RawClient(port_of(pair, "a")) as primary:
        primary.send("t", "four")
    shown(pair)
    for one in waiting:
        assert bodies.unpack_rows(reader.wait(one)).stop == 4
    over = reader.ask(Command.READ, bodies.pack_read(bodies.Read("t", 0, 4, 10, 0, 5000)))
    reader.call(Command.PING)
    assert over not in reader.answers
    pair.clock.advance(seconds=6)
    rows = bodies.unpack_rows(reader.wait(over))
    assert (rows.start, rows.stop, rows.next) == (4, 4, 4)
    left = reader.ask(Command.READ, bodies.pack_read(bodies.Read("t", 0, 4, 10, 0, 60_000)))
    reader.call(Command.BYE)
    assert left in reader.answers


def test_a_read_that_waits_hears_that_its_topic_has_ended(pair: Cluster, reader: RawClient) -> None:
    waiting = reader.ask(Command.READ, bodies.pack_read(bodies.Read("t", 0, 3, 10, 0, 60_000)))
    reader.call(Command.PING)
    with RawClient(port_of(pair, "a")) as primary:
        primary.manage(Command.TOPIC_DELETE, control.TopicDelete(topic="t"), control.Nothing)
    shown(pair)
    with pytest.raises(UnknownTopic):
        reader.wait(waiting)


def same_answers(pair: Cluster, reader: RawClient) -> None:
    """Check that both brokers answer lists alike."""
    asked: list[tuple[Command, Any]] = [
        (Command.TOPIC_LIST, control.TopicList()),
        (Command.GROUP_LIST, control.GroupList(limit=100)),
        (Command.GROUP_LIST, control.GroupList()),
        (Command.OFFSET_AT, control.OffsetAt(topic="t", queue=0, time_us=1)),
        (Command.QUEUE_RANGES, control.QueueRanges(topics=[control.RangesAsk(topic="t")])),
        (Command.FAILED_LIST, control.FailedList(topic="t", group="g", queue=0, dead=True)),
        (Command.FAILED_QUERY, control.FailedQuery(topic="t", group="g", queue=0)),
        (Command.SCHEDULE_LIST, control.ScheduleList(topic="t")),
        (Command.SCHEDULE_HOURS, control.ScheduleHours(topic="t")),
        (Command.FIND, control.Find(topic="t", offset=1)),
    ]
    with RawClient(port_of(pair, "a")) as primary:
        for command, request in asked:
            body = control.encode(request)
            assert reader.call(command, body) == primary.call(command, body), command.name


def test_lists_are_those_of_the_primary(pair: Cluster, reader: RawClient) -> None:
    with ternmq.sync.connect(pair.url) as client:
        client.send("t", "later", deliver_after=3600)
        for delivery in client.pull("t", group="g", max_messages=2):
            delivery.reject("not wanted")
    shown(pair)
    same_answers(pair, reader)


def test_routes_name_all_brokers_and_their_change_is_told(pair: Cluster, reader: RawClient) -> None:
    routes = reader.manage(Command.ROUTES, control.RoutesAsk(), control.Routes)
    (route,) = routes.groups
    assert (route.primary, [one.name for one in route.brokers]) == ("a", ["a", "b"])
    assert reader.welcome.journal == route.journal


def test_no_reader_is_left_when_the_broker_leads(pair: Cluster, reader: RawClient) -> None:
    waiting = reader.ask(Command.READ, bodies.pack_read(bodies.Read("t", 0, 3, 10, 0, 60_000)))
    reader.call(Command.PING)
    pair.switch(to="b")
    with pytest.raises((Closed, ConnectionResetError)):
        reader.wait(waiting)
    with RawClient(port_of(pair, "b")) as primary:
        primary.send("t", "four")
        assert primary.read("t", 3).stop == 4
    shown(pair)
    with RawClient(port_of(pair, "a"), reads=True) as other:
        assert other.read("t", 3).stop == 4


def test_what_retention_removes_is_removed_there() -> None:
    settings = {"segment": "4MiB", "reserve": "4MiB"}
    with cluster(replicas=1, settings=settings) as pair:
        pair.wait_for_copies(2)
        with ternmq.sync.connect(pair.url) as client:
            client.admin.create_topic("orders", retention=3600)
            client.send("orders", "x" * 1000)
            shown(pair)
            with RawClient(port_of(pair, "b"), reads=True) as reader:
                assert reader.read("orders", 0).stop == 1
                for number in range(12_000):
                    client.send_soon("orders", f"{number}" + "y" * 1000)
                client.flush()
                pair.clock.advance(hours=3)
                first = client.admin.topic("orders").queues[0].first
                assert first > 0

                def removed() -> bool:
                    shown(pair)
                    try:
                        reader.read("orders", 0)
                    except OffsetExpired as error:
                        return str(first) in str(error)
                    return False

                wait_until(removed, "the follower has removed it, too", PATIENCE_S)
                assert reader.read("orders", first).start == first


def in_brokers_loop(pair: Cluster, call: Callable[[], Any]) -> Any:
    async def run() -> Any:
        return call()

    return pair._do(run())


def test_its_numbers_are_shown(pair: Cluster, reader: RawClient) -> None:
    place = pair._brokers.place("b")
    assert place.node is not None
    replica = place.node._replica
    assert replica is not None
    figures = in_brokers_loop(pair, replica.figures)
    assert (figures.readers, figures.behind_s) == (1, 0.0)
    reader.close()
    wait_until(
        lambda: in_brokers_loop(pair, replica.figures).readers == 0, "it is gone", PATIENCE_S
    )


def test_sessions_of_the_client_are_of_their_kinds(pair: Cluster) -> None:
    with ternmq.sync.connect(pair.url) as client:
        client.send("t", 1)
        shown(pair)
        list(client.read("t", from_="replica"))
        engine = client.reach()[1]
        assert isinstance(engine._replica, ReplicaSession)
        assert not isinstance(engine._session, ReplicaSession)
