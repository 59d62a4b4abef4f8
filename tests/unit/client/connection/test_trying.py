"""A blocking connection to the first of several brokers, against brokers that may be mute."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ternmq.client.connection import trying
from ternmq.client.connection.address import parse_all
from ternmq.client.connection.blocking import BlockingConnection
from ternmq.client.connection.known import Known
from ternmq.client.connection.stats import Traffic
from ternmq.client.connection.trying import Opened, connect_to_first
from ternmq.model.errors import CannotConnect, NotPrimary, TernMQError, Unauthenticated
from ternmq.wire import control
from ternmq.wire.commands import Command
from tests.unit.client.connection.test_blocking import HELLO, Broker


@pytest.fixture
def brokers() -> Iterator[list[Broker]]:
    found = [Broker(), Broker(), Broker()]
    yield found
    for one in found:
        one.close()


def opened(brokers: list[Broker], timeout: float = 5.0) -> Opened:
    url = f"ternmq://{','.join(f'127.0.0.1:{one.port}' for one in brokers)}"
    return connect_to_first(parse_all(url), Traffic(), HELLO, timeout, timeout)


def test_the_first_that_accepts(brokers: list[Broker]) -> None:
    brokers[0].answers[Command.HELLO] = NotPrimary("a replica")
    found = opened(brokers)
    assert (found.address.port, found.welcome.session) == (brokers[1].port, 9)
    assert [len(one.hellos) for one in brokers] == [1, 1, 0]
    found.line.close()


def test_a_mute_one_costs_little_and_a_slow_one_is_found(brokers: list[Broker]) -> None:
    began = time.monotonic()
    brokers[0].mute = brokers[1].mute = {Command.HELLO}
    found = opened(brokers)
    assert found.address.port == brokers[2].port
    assert time.monotonic() - began < 4, "half a second; 10 s if each were waited for"
    found.line.close()
    with ExitStack() as stack:
        slow = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        url = f"ternmq://127.0.0.1:{slow.getsockname()[1]},127.0.0.1:{brokers[2].port}"
        brokers[2].answers[Command.HELLO] = NotPrimary("a replica")
        before = len(brokers[2].hellos)
        with pytest.raises(NotPrimary, match="none of the brokers leads now"):
            connect_to_first(parse_all(url), Traffic(), HELLO, 0.6, 0.6)
        assert len(brokers[2].hellos) - before == 3, "in each round: 0.25, 0.5 and 0.6 s"


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ([NotPrimary("a"), NotPrimary("b")], NotPrimary),
        ([NotPrimary("a"), Unauthenticated("b")], Unauthenticated),
    ],
)
def test_if_all_refuse_they_are_tried_once(
    brokers: list[Broker], errors: list[TernMQError], kind: type[TernMQError]
) -> None:
    for one, error in zip(brokers, errors, strict=False):
        one.answers[Command.HELLO] = error
    brokers[2].close()
    with pytest.raises(kind) as caught:
        opened(brokers)
    assert [len(one.hellos) for one in brokers[:2]] == [1, 1]
    assert f"ternmq://127.0.0.1:{brokers[2].port}: connection refused" in str(caught.value)


def test_of_one_address_the_error_is_as_before(brokers: list[Broker]) -> None:
    brokers[0].cut = 1
    with pytest.raises(CannotConnect, match="closed the connection without an answer"):
        opened(brokers[:1])
    brokers[0].answers[Command.HELLO] = NotPrimary("a replica")
    with pytest.raises(NotPrimary, match=r"^a replica"):
        opened(brokers[:1])


def test_a_learned_address_is_not_waited_for_as_one_of_the_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[tuple[int, float]] = []

    class Silent(BlockingConnection):
        def connect(
            self, hello: control.Hello, connect_timeout: float, timeout: float
        ) -> control.Welcome:
            tried.append((self._address.port, connect_timeout))
            raise CannotConnect("no connection in time") from TimeoutError()

    monkeypatch.setattr(trying, "BlockingConnection", Silent)
    (url,) = parse_all("ternmq://127.0.0.1:1")
    known = Known([url])
    route = control.BrokerGroupRoute(
        name="main",
        journal=5,
        brokers=[control.BrokerRoute(name="b", addresses=["127.0.0.1:2"])],
    )
    known.learn(control.Routes(group="main", groups=[route]), url)
    addresses = known.in_order(url, stepped_down=False)
    with pytest.raises(CannotConnect):
        connect_to_first(addresses, Traffic(), HELLO, 4.0, 4.0, known)
    assert [limit for port, limit in tried if port == 1] == [0.25, 0.5, 1.0, 2.0, 4.0]
    assert max(limit for port, limit in tried if port == 2) == 0.5
    tried.clear()
    with pytest.raises(CannotConnect):
        connect_to_first(list(addresses[1:]) * 2, Traffic(), HELLO, 4.0, 4.0, known)
    assert len(tried) == 2, "nothing that was learned is a reason to try again for longer"
