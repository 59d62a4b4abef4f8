"""A pair, and clients whose URL names one of the brokers: they go on at the other one, and back.

The protocol of routes is also spoken by hand here, as ``docs/protocol`` describes it.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq import ClientError, RefusedError
from ternmq.cluster.coordination.wishes import Change
from tests.black_box.pair import TOKEN, Pair
from tests.black_box.process import DEADLINE, BrokerProcess, wait_until
from tests.black_box.stranger import Refused, Stranger, frame, pack, unpack
from tests.black_box.test_pair import Producer, check, consumed, made

ROUTES, ROUTES_CHANGED = 120, 121
NOT_PRIMARY, HELLO, PUSH, ANSWER_ERROR = 154, 1, 8, 3
PING = 2
WHO = {"app": "admin", "token": TOKEN, "client": "a-client-by-hand"}


class AsyncProducer(Producer):
    """The same, with the client for asyncio."""

    def run(self) -> None:
        try:
            asyncio.run(self._send())
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    async def _send(self) -> None:
        async with ternmq.connect(self._url, timeout=DEADLINE) as client:
            number = 0
            while not self._ends.is_set():
                try:
                    await client.send(self._topic, {"n": number}, **self._options)
                    self.answered.append(number)
                except (ClientError, RefusedError):
                    self.unknown.append(number)
                number += 1


def url_of(broker: BrokerProcess) -> str:
    """Return a URL that names one broker."""
    return f"ternmq://admin:{TOKEN}@127.0.0.1:{broker.port}"


def place_of(broker: BrokerProcess) -> tuple[str, int]:
    return "127.0.0.1", broker.port


def routes_at(broker: BrokerProcess) -> dict[str, Any]:
    """Return the broker group, as the primary states it."""
    with Stranger(place_of(broker)) as client:
        assert client.hello(**WHO)["routes"] is True
        told = client.control(ROUTES)
        (group,) = [one for one in told["groups"] if one["name"] == told["group"]]
        return dict(group)


def wait_until_named(primary: BrokerProcess, *others: BrokerProcess) -> None:
    """Wait until a primary states the addresses of the others."""

    def named() -> bool:
        places = [at for one in routes_at(primary)["brokers"] for at in one.get("addresses", ())]
        return all(f"127.0.0.1:{one.port}" in places for one in others)

    wait_until(named, "the primary names the other broker")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", [AsyncProducer, Producer], ids=["asyncio", "blocking"])
def test_a_url_that_names_one_broker_goes_on_at_the_other_and_back(
    tmp_path: Path, kind: type[Producer]
) -> None:
    with Pair(tmp_path) as pair:
        a, b = pair["a"], pair["b"]
        made(pair, "orders", ordered=True)
        wait_until_named(a, b)
        producer = kind(url_of(a), "orders", ordering_key="k")
        producer.start()
        producer.wait_for(50)
        a.kill()
        producer.wait_for(50)
        assert pair.record().primary == "b"

        a.start()
        pair.wait_for_member("a")
        producer.wait_for(20)
        pair.ask(Change.SWITCH, "a")
        pair.wait_for_primary("a")
        producer.wait_for(20)
        wait_until(lambda: len(pair.record().members) == 2, "b is a member")
        b.kill()
        producer.wait_for(50)
        assert pair.record().primary == "a"
        producer.finish()
        assert not producer.unknown, "a send failed"
        found = consumed(url_of(a), "orders", len(producer.answered))
        check(producer, found)
        assert found == sorted(found), "out of order"


@pytest.mark.timeout(240)
def test_a_consumer_whose_url_names_the_broker_that_follows(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        made(pair, "orders")
        wait_until_named(pair["a"], pair["b"])
        with (
            ternmq.sync.connect(url_of(pair["b"]), timeout=DEADLINE) as client,
            client.consume("orders", group="check") as deliveries,
        ):
            client.send("orders", {"n": 0})
            first = next(iter(deliveries))
            pair["a"].kill()
            first.ack()
            client.send("orders", {"n": 1})
            second = next(iter(deliveries))
            assert (first.value["n"], second.value["n"]) == (0, 1)
            second.ack()


@pytest.mark.timeout(240)
def test_routes_by_hand(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        a, b = pair["a"], pair["b"]
        wait_until_named(a, b)
        group = routes_at(a)
        assert (group["primary"], group.get("state", "up"), group["epoch"]) == ("a", "up", 1)
        roles = {one["name"]: one.get("role", "follower") for one in group["brokers"]}
        assert roles == {"a": "primary", "b": "member"}

        # A broker that follows states them, too, but only to who says that it understands.
        with Stranger(place_of(b)) as plain, pytest.raises(Refused) as caught:
            plain.hello(**WHO)
        assert caught.value.code == NOT_PRIMARY
        hello = {"name": "TernMQ", "versions": [1], "routes": True, **WHO}
        with Stranger(place_of(b)) as knows:
            knows.socket.sendall(frame(HELLO, 0, 1, pack(hello)))
            command, flags, id_, body = knows.next()
            assert (command, flags, id_) == (ROUTES_CHANGED, PUSH, 0)
            (told,) = unpack(body)["routes"]["groups"]
            assert (told["primary"], told["journal"]) == ("a", group["journal"])
            command, flags, _, _ = knows.next()
            assert (command, flags) == (HELLO, ANSWER_ERROR)

        # Who asked is told when a broker is gone; who did not ask is not.
        with Stranger(place_of(a)) as asked, Stranger(place_of(a)) as other:
            assert asked.hello(**WHO)["journal"] == group["journal"]
            other.hello(**WHO)
            asked.control(ROUTES)
            b.kill()
            command, flags, _, body = asked.next()
            assert (command, flags, unpack(body)) == (ROUTES_CHANGED, PUSH, {})
            other.ask(PING)
            assert other.pushes == []
        wait_until(
            lambda: {one["name"] for one in routes_at(a)["brokers"]} == {"a"}, "b is left out"
        )


@pytest.mark.timeout(120)
def test_hostile_bytes_to_a_broker_that_follows(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        address = place_of(pair["b"])
        wrong = {"name": "TernMQ", "versions": [1], "routes": 5, **WHO}
        long = {**wrong, "routes": True, "language": "x" * 5000}
        for data in (
            frame(ROUTES, 0, 1, pack({})),
            frame(HELLO, 0, 1, pack(wrong)),
            frame(HELLO, 0, 1, pack(long)),
            frame(HELLO, 0, 1, pack({**wrong, "routes": True})) + frame(ROUTES, 0, 2, pack({})),
            b"\x00" * 64,
        ):
            with socket.create_connection(address, timeout=DEADLINE) as line:
                line.sendall(data)
                came = b""
                try:
                    while part := line.recv(65536):
                        came += part
                except ConnectionResetError:
                    pass
                assert len(came) < 4096
                assert b"brokers" not in came
        with ternmq.sync.connect(url_of(pair["b"]), timeout=DEADLINE) as client:
            client.admin.topics()
