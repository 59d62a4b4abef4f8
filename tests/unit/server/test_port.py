"""Every command can be carried out for a caller that has no socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import cast

import pytest

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.model.errors import TernMQError
from ternmq.model.specs import TopicSpec
from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.server.commands.commands import open_commands
from ternmq.server.desk.desk import Desk
from ternmq.server.desk.routing import Routing
from ternmq.server.engine.clocks import SystemClocks
from ternmq.server.engine.engine import Core
from ternmq.server.telemetry.counters import Counters
from ternmq.settings import Mode, load
from ternmq.wire import bodies, control
from ternmq.wire.commands import TABLE, Command
from ternmq.wire.session import Request
from tests.asynchronous import until
from tests.black_box.requests import sound_requests
from tests.unit.server.plain_caller import PlainCaller
from tests.unit.wire import examples

MINUTE_MS = 60_000
STATUS = cast("control.Status", examples.STRUCTS[Command.STATUS][1])


REFUSED = {
    "EXTEND": "LeaseExpired",
    "PREPARE": "IdConflict",
    "TOPIC_CREATE": "TopicExists",
    "GROUP_JOIN": "GroupSettingsMismatch",
    "GROUP_DELETE": "UnknownGroup",
    "GROUP_SKIP": "InvalidRequest",
    "FAILED_RETRY": "LeaseExpired",
    "FAILED_DELETE": "LeaseExpired",
    "TRANSACTION_COMMIT": "UnknownTransaction",
    "SCHEDULE_CANCEL": "MessageNotFound",
    "TRANSACTION_PREPARE": "IdConflict",
    "TRANSACTION_SETTLE": "UnknownTransaction",
    "TRANSACTION_READ": "UnknownTransaction",
    "TRANSACTION_MOVE": "UnknownTransaction",
    "TRANSACTION_SHOW": "UnknownTransaction",
    "TRANSACTION_DECIDE": "UnknownTransaction",
    "TRANSACTION_CHECK_AGAIN": "UnknownTransaction",
}
"""Commands whose requests name something that is not there, or is there already."""


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[tuple[Desk, PlainCaller]]:
    """Open a broker in memory, with a caller that has a session."""
    settings = load(mode=Mode.TESTING)
    loop = asyncio.get_running_loop()
    core = Core(MemoryDisk(), settings.options(), SystemClocks(loop), loop, seed=1)
    desk = Desk(core, settings, Counters())
    open_commands(
        desk,
        auth=False,
        welcome=lambda joined: pytest.fail("no welcome is made without a connection"),
        status=lambda shows, series: STATUS,
        routing=Routing(desk, control.Routes),
    )
    caller = PlainCaller(desk)
    caller.greet()
    try:
        yield desk, caller
    finally:
        core.close(clean=True)


async def answered(caller: PlainCaller, command: Command, body: bytes = b"") -> bytes:
    """Carry a request out and return its answer; raises what refuses it."""
    id_ = caller.ask(command, body)
    await until(lambda: id_ in caller.answers or id_ in caller.refusals)
    if id_ in caller.refusals:
        raise caller.refusals[id_]
    return caller.answers[id_]


def batch(topic: str, *payloads: bytes) -> bytes:
    rows = [Row(one) for one in payloads]
    return encode(
        rows, topic_seed=topic_seed(topic), producer_id=1, first_sequence=1, born_us=1
    )  # fmt: skip


async def create(caller: PlainCaller, *topics: str) -> None:
    for topic in topics:
        spec = TopicSpec(name=topic)
        made = control.TopicCreate(topic=topic, spec=spec)
        await answered(caller, Command.TOPIC_CREATE, control.encode(made))
        join = control.GroupJoin(topic=topic, group="g")
        await answered(caller, Command.GROUP_JOIN, control.encode(join))


async def test_every_command() -> None:
    """Each is answered, or refused for what it names, as over a connection."""
    async with opened() as (_, caller):
        await create(caller, "t", "t.gone")
        asked: set[Command] = set()
        refused: dict[Command, TernMQError] = {}
        for number, body in sound_requests("t"):
            command = Command(number)
            asked.add(command)
            try:
                await answered(caller, command, body)
            except TernMQError as error:
                refused[command] = error
        assert asked == TABLE.keys() - {Command.HELLO, Command.PING, Command.BYE}
        found = {command.name: type(error).__name__ for command, error in refused.items()}
        assert found == REFUSED
        assert bodies.unpack_pong(await answered(caller, Command.PING)) > 0
        assert await answered(caller, Command.BYE) == b""


async def test_a_pull_waits_until_there_is_a_message() -> None:
    async with opened() as (desk, caller):
        await create(caller, "t")
        pull = bodies.pack_pull(bodies.Pull("t", "g", None, 10, 0, MINUTE_MS))
        waits = caller.ask(Command.PULL, pull)
        assert (caller.waiting, caller.parked, desk.waiting.taken) == ({waits}, 1, 1)
        other = PlainCaller(desk)
        other.greet("other")
        await answered(other, Command.SEND, bodies.pack_send("t", None, batch("t", b"a", b"b")))
        await until(lambda: waits in caller.answers)
        got = bodies.unpack_delivery(caller.answers[waits])
        assert [(run[0], run[1]) for run in got.runs] == [(0, 2)]
        assert (caller.waiting, caller.parked, desk.waiting.taken) == (set(), 0, 0)


def waiting_request(desk: Desk, what: str) -> tuple[Command, bytes]:
    """Return a request that waits."""
    if what == "pull":
        return Command.PULL, bodies.pack_pull(bodies.Pull("t", "g", None, 10, 0, MINUTE_MS))
    if what == "read":
        return Command.READ, bodies.pack_read(bodies.Read("t", 0, 0, 10, 0, MINUTE_MS))
    end = desk.core.broker.journal.end
    asked = bodies.JournalRead(end, 0, MINUTE_MS, without_bodies=False)
    return Command.JOURNAL_READ, bodies.pack_journal_read(asked)


@pytest.mark.parametrize("what", ["pull", "read", "journal"])
async def test_what_waits_can_be_ended_taken_back_and_lost(what: str) -> None:
    async with opened() as (desk, caller):
        await create(caller, "t")
        command, body = waiting_request(desk, what)
        id_ = caller.ask(command, body)
        await until(lambda: caller.waiting)  # a read comes last in a turn
        assert (caller.waiting, caller.parked) == ({id_}, 1)
        desk.commands.run(caller, Request(command, id_, body, one_way=False))
        await until(lambda: id_ in caller.refusals)
        assert "waits already" in str(caller.refusals[id_])

        cancelled = caller.ask(Command.CANCEL, bodies.pack_cancel(id_))
        await until(lambda: id_ in caller.answers and cancelled in caller.answers)
        assert (caller.waiting, caller.parked) == (set(), 0)

        id_ = caller.ask(command, body)
        await until(lambda: caller.waiting)
        [back] = desk.commands.withdraw(caller)
        assert (back.id, caller.waiting, caller.parked) == (id_, set(), 0)
        assert back.until_us > desk.core.now_us(), "it keeps the time of its end"
        desk.commands.run(caller, back)
        await until(lambda: caller.waiting == {id_})
        desk.commands.end_all(caller)
        await until(lambda: id_ in caller.answers)

        caller.ask(command, body)
        await until(lambda: caller.waiting)
        await answered(caller, Command.ROUTES, control.encode(control.RoutesAsk()))
        assert desk.route_watchers == {caller}
        caller.leave()
        assert not desk.route_watchers
        assert (caller.waiting, caller.parked, desk.waiting.taken) == (set(), 0, 0)
        assert caller not in desk.callers


async def test_without_room_a_request_goes_back() -> None:
    async with opened() as (desk, caller):
        await create(caller, "t")
        read = bodies.pack_read(bodies.Read("t", 0, 0, 10, 0, 0))
        caller.roomy = False
        id_ = caller.ask(Command.READ, read)
        await until(lambda: caller.back)
        assert [one.id for one in caller.back] == [id_]
        assert id_ not in caller.answers
        caller.roomy = True
        desk.commands.run(caller, caller.back.pop())
        await until(lambda: id_ in caller.answers)


async def test_what_a_caller_was_handed_out_comes_to_another_when_it_is_gone() -> None:
    async with opened() as (desk, caller):
        await create(caller, "t")
        await answered(caller, Command.SEND, bodies.pack_send("t", None, batch("t", b"a")))
        pull = bodies.pack_pull(bodies.Pull("t", "g", None, 10, 0, 0))
        assert bodies.unpack_delivery(await answered(caller, Command.PULL, pull)).runs
        await answered(caller, Command.BYE)
        caller.leave()
        other = PlainCaller(desk)
        other.greet("other")
        assert bodies.unpack_delivery(await answered(other, Command.PULL, pull)).runs


async def test_callers_are_listed_told_and_closed() -> None:
    async with opened() as (desk, caller):
        other = PlainCaller(desk)
        other.greet("other", language="none")
        await create(caller, "t")
        page = await answered(
            caller, Command.CLIENT_LIST, control.encode(control.ClientList(limit=9))
        )
        listed = control.decode(page, control.Clients).clients
        assert {one.app: one.language for one in listed} == {"shop": "", "other": "none"}
        gone = control.TopicDelete(topic="t")
        await answered(caller, Command.TOPIC_DELETE, control.encode(gone))
        await until(lambda: other.pushes)
        put = control.AppPut(app="other", grants=[], new_token=True)
        for _ in range(2):  # the first makes the app, the second gives it another token
            await answered(caller, Command.APP_PUT, control.encode(put))
        assert (other.abandoned, caller.abandoned) == ("its app has another token", "")
