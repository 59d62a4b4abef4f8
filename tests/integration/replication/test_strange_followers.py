"""Followers that may not follow, and what they must not say: nobody else notices anything."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ternmq.cluster.replication.settings import CopySettings
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.model.errors import RefusedError, Unauthenticated, UnknownCommand, UnsupportedVersion
from ternmq.server.app import Server
from ternmq.settings import Mode, load
from ternmq.wire import bodies, frames
from ternmq.wire.commands import Command
from ternmq.wire.frames import ONE_WAY, PUSH
from tests.asynchronous import until
from tests.integration.replication.copying import JOURNAL, Copier, Sender, pair


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"token": "another"}, Unauthenticated, "token"),
        ({"token": ""}, Unauthenticated, "token"),
        ({"group": "payments"}, RefusedError, "broker group orders"),
        ({"journal": JOURNAL + 1}, RefusedError, "another broker group"),
        ({"broker": "a"}, RefusedError, "give one another name"),
        ({"versions": (0, 200)}, UnsupportedVersion, "versions"),
    ],
)
async def test_who_may_not_follow(
    tmp_path: Path, changes: dict[str, object], error: type[Exception], says: str
) -> None:
    async with pair(tmp_path) as one:
        copier, sender = one.copier(), one.sender()
        await sender.connect(one.server.port)
        await copier.follow(**changes)
        assert type(copier.refusal) is error
        assert says in str(copier.refusal)
        await until(lambda: copier.ended, "the connection is closed")
        await until(lambda: not one.primary._links)
        assert not one.primary.figures()
        await sender.sent(3)


def ack(copier: Copier, **changes: int) -> bytes:
    assert copier.followed is not None
    told = bodies.Ack(copier.followed.epoch, copier.incarnation, 0, 0, 0, copier.echo, 3000)
    return frames.pack(Command.ACK, ONE_WAY, 1, bodies.pack_ack(told._replace(**changes)))


@pytest.mark.parametrize(
    "say",
    [
        lambda copier: ack(copier, epoch=99),
        lambda copier: ack(copier, incarnation=8),
        lambda copier: ack(copier, written=1 << 40),
        lambda copier: ack(copier, written=0, synced=8),
        lambda copier: ack(copier, echo=1 << 62),
        lambda copier: ack(copier)[:-8],
        lambda _: frames.pack(Command.SEND, 0, 1, b"x"),
        lambda _: frames.pack(Command.MARKS, PUSH, 0, b""),
        lambda _: b"\xff" * 40,
    ],
)
async def test_what_a_follower_must_not_say(
    tmp_path: Path, say: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as one:
        copier, sender = one.copier(), one.sender()
        copier.acks = False
        await copier.follow()
        await sender.connect(one.server.port)
        await sender.sent(3)
        committed = one.journal.committed
        assert callable(say)
        data = say(copier)
        with caplog.at_level(logging.WARNING):
            copier.say(data)
            if len(data) % 64:
                copier.say(bytes(64))  # what was cut short is completed
            await until(lambda: copier.ended, "the connection is closed")
        lines = [one for one in caplog.records if "is cut off" in one.getMessage()]
        assert len(lines) == 1
        assert one.journal.committed >= committed
        await sender.sent(3)
        await copier.close()
        again = one.copier()
        await again.follow()
        await until(lambda: again.end == one.journal.written)


async def test_an_acknowledgement_of_what_was_not_sent_yet(tmp_path: Path) -> None:
    """The primary has it, and the follower cannot: the window held it back."""
    async with pair(tmp_path, settings=CopySettings(window_bytes=1 << 20)) as one:
        copier, sender = one.copier(), one.sender()
        copier.acks = False
        await sender.connect(one.server.port)
        await sender.sent(8, 300_000)
        await copier.follow()
        await until(lambda: copier.end > 0)
        copier.say(ack(copier, written=one.journal.written))
        await until(lambda: copier.ended, "the connection is closed")


async def test_a_broker_without_a_group_refuses_to_be_followed() -> None:
    flags = {"listen": "127.0.0.1:0", "http": "off", "drain_timeout": "0s"}
    server = Server(load(environ={}, flags=flags, mode=Mode.TESTING), disk=MemoryDisk())
    await server.start()
    try:
        copier, sender = Copier(server.port), Sender()
        await copier.follow()
        assert type(copier.refusal) is UnknownCommand
        await sender.connect(server.port)
        for command in (Command.FOLLOW, Command.ACK, Command.BYTES):
            for flags_ in (0, ONE_WAY):
                ask = sender.session.tell if flags_ else sender.session.ask
                frame = ask(command, b"")
                sender.say(frame if isinstance(frame, bytes) else frame[1])
        await sender.sent(3)
        assert {type(error) for _, error in sender.refused} == {UnknownCommand}
        await copier.close()
        await sender.close()
    finally:
        await server.abandon()
