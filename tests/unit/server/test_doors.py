"""A stop ends every door, not only the one of the native connections."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.model.errors import JournalFailed
from ternmq.model.specs import TopicSpec
from ternmq.server.app import Server
from ternmq.settings import Mode, load
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from tests.asynchronous import until
from tests.unit.server.plain_caller import PlainCaller, PlainDoor

MINUTE_MS = 60_000


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[tuple[Server, PlainDoor]]:
    """Run a server that has one more door; it is killed at the end if it was not closed."""
    server = Server(load(mode=Mode.TESTING), disk=MemoryDisk())
    await server.start()
    door = PlainDoor(server.desk)
    try:
        yield server, door
    finally:
        if not server.desk.draining:
            await server.abandon()


async def waiting_pull(caller: PlainCaller) -> int:
    """Have a caller wait for messages; return the id of its request."""
    topic = control.TopicCreate(topic="t", spec=TopicSpec(name="t"))
    join = control.GroupJoin(topic="t", group="g")
    for command, body in ((Command.TOPIC_CREATE, topic), (Command.GROUP_JOIN, join)):
        id_ = caller.ask(command, control.encode(body))
        await until(lambda id_=id_: id_ in caller.answers)  # type: ignore[misc]
    pull = bodies.pack_pull(bodies.Pull("t", "g", None, 10, 0, MINUTE_MS))
    waits = caller.ask(Command.PULL, pull)
    assert caller.waiting == {waits}
    return waits


async def test_a_stop_notifies_answers_and_closes_the_callers_of_each_door() -> None:
    async with listening() as (server, door):
        caller = door.come("shop")
        waits = await waiting_pull(caller)
        await server.close()
        assert caller.pushes == [Command.DRAIN]
        assert bodies.unpack_delivery(caller.answers[waits]).runs == ()
        assert (caller.waiting, caller.closed) == (set(), True)
        # Closed already, `abandon` finds nothing to do.
        assert door.steps == ["drain", "stop", "finish", "the broker stops"]


async def test_a_failed_journal_closes_the_callers_of_each_door_at_once() -> None:
    async with listening() as (server, door):
        caller = door.come("shop")
        server.core.fail(JournalFailed("the disk is gone"))
        assert (caller.closed, caller.abandoned) == (True, "the journal failed")
        assert door.steps == ["the journal failed"]
        await server.close()
        assert "drain" not in door.steps, "nothing is answered any more"


async def test_the_desk_is_deserted_when_the_callers_of_every_door_are_gone() -> None:
    async with listening() as (server, door):
        seen = [server.desk.deserted]
        caller = door.come("shop")
        seen.append(server.desk.deserted)
        caller.leave()
        assert [*seen, server.desk.deserted] == [True, False, True]
