"""The first frame that a client receives is the answer to its HELLO."""

from __future__ import annotations

import pytest

from ternmq.server.native.connection import Connection
from ternmq.testing import broker
from ternmq.wire import control
from ternmq.wire.commands import Command
from tests.integration.raw import RawClient


def test_a_push_does_not_overtake_the_answer_to_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer waits for its record; the broker begins to stop meanwhile."""
    greet = Connection._greet

    def greet_and_drain(peer: Connection) -> None:
        greet(peer)
        if peer.session:
            peer._hub.drain()

    monkeypatch.setattr(Connection, "_greet", greet_and_drain)
    with broker() as one, RawClient(one.port) as client:
        while not client.pushes:
            client.receive()
        assert [push.command for push in client.pushes] == [Command.DRAIN]
        assert client.number


def test_nor_does_the_news_of_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    greet = Connection._greet
    watched: list[str] = []

    def greet_and_tell(peer: Connection) -> None:
        greet(peer)
        if watched and peer.session:
            peer.push(Command.TOPIC_CHANGED, control.encode(control.TopicChanged(topic="t")))

    monkeypatch.setattr(Connection, "_greet", greet_and_tell)
    with broker() as one:
        watched.append("t")
        with RawClient(one.port) as client:
            while not client.pushes:
                client.receive()
            assert [push.command for push in client.pushes] == [Command.TOPIC_CHANGED]
