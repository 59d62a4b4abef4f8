"""BYE and KEEP of a client with many leases: a piece in each turn, the answer when all are back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from ternmq.model.errors import LeaseExpired, UnknownSession
from ternmq.testing import InProcessBroker, broker
from ternmq.wire import bodies, control
from ternmq.wire.bodies import Delivery
from ternmq.wire.commands import Command
from tests.asynchronous import until
from tests.integration.raw import Closed, RawClient

GROUPS = [f"g{number}" for number in range(40)]

T = TypeVar("T")


def in_loop(one: InProcessBroker, call: Callable[[], T]) -> T:
    """Do something in the broker's loop."""

    async def run() -> T:
        return call()

    return asyncio.run_coroutine_threadsafe(run(), one._loop).result(20)


@pytest.fixture
def one() -> Iterator[InProcessBroker]:
    """Run a broker that gives back two group queues a turn."""
    with broker() as started:
        ticking = started._server.core.broker.ticking
        in_loop(started, lambda: setattr(ticking, "work_a_turn", 12))
        yield started


def taking(one: InProcessBroker) -> tuple[RawClient, dict[str, Delivery]]:
    """Return a client that holds a message of each group."""
    client = RawClient(one.port)
    client.send("t", "a")
    for group in GROUPS:
        client.join("t", group)
    return client, {group: client.pull("t", group) for group in GROUPS}


def in_one_breath(client: RawClient, *asked: tuple[Command, bytes]) -> list[int]:
    """Ask several things in one write; return their ids."""
    some = [client.session.ask(command, body) for command, body in asked]
    client.socket.sendall(b"".join([frame for _, frame in some]))
    return [id_ for id_, _ in some]


def held(one: InProcessBroker, session: int) -> int:
    figures = one._server.core.broker.views.figures
    return in_loop(one, lambda: len(figures.leased_to(session)))


def turns(one: InProcessBroker) -> int:
    return in_loop(one, lambda: one._server.core.turns)


def test_the_answer_to_a_goodbye_comes_when_all_leases_are_given_back(
    one: InProcessBroker,
) -> None:
    client, got = taking(one)
    last = got[GROUPS[-1]]
    settle = bodies.Settle("t", GROUPS[-1], last.queue, last.epoch, last.lease, 1, (), None, "")
    pull = bodies.Pull("t", GROUPS[0], None, 1, 0, 0)
    before = turns(one)
    bye, settled, pulled = in_one_breath(
        client,
        (Command.BYE, b""),
        (Command.SETTLE, bodies.pack_settle(settle)),
        (Command.PULL, bodies.pack_pull(pull)),
    )
    assert client.wait(bye) == b""
    assert held(one, client.number) == 0
    assert turns(one) - before >= len(GROUPS) // 2
    with pytest.raises(LeaseExpired):  # it was asked behind the goodbye, and carried out behind it
        client.wait(settled)
    with pytest.raises(UnknownSession):
        client.wait(pulled)
    with RawClient(one.port) as other:
        for group in (GROUPS[0], GROUPS[-1]):
            (run,) = other.pull("t", group).runs
            assert (run.attempt, run.deliveries) == (1, 2)


async def test_who_goes_without_waiting_for_the_answer_gives_all_back_as_well(
    one: InProcessBroker,
) -> None:
    client, _ = taking(one)
    client.ask(Command.BYE)
    client.close()
    await until(lambda: not held(one, client.number))
    with RawClient(one.port) as other:
        for group in GROUPS:
            (run,) = other.pull("t", group).runs
            assert (run.attempt, run.deliveries) == (1, 2)


def test_a_pull_behind_a_keep_is_not_given_back(one: InProcessBroker) -> None:
    first, got = taking(one)
    first.send("t", "b")
    first.close()
    with RawClient(one.port, client=first.client, session=first.number) as back:
        reached = got[GROUPS[0]]
        kept = [control.KeptLease(epoch=reached.epoch, lease=reached.lease)]
        pull = bodies.Pull("t", GROUPS[-1], None, 10, 0, 0)
        keep, pulled = in_one_breath(
            back,
            (Command.KEEP, control.encode(control.Keep(leases=kept))),
            (Command.PULL, bodies.pack_pull(pull)),
        )
        back.wait(keep)
        later = bodies.unpack_delivery(back.wait(pulled))
        assert [(run.start, run.attempt, run.deliveries) for run in later.runs] == [
            (0, 1, 2),
            (1, 1, 1),
        ]
        assert held(one, first.number) == 2
        assert back.settle("t", GROUPS[0], reached).rows == 1
        assert back.settle("t", GROUPS[-1], later).rows == 2
        with pytest.raises(LeaseExpired):
            back.settle("t", GROUPS[1], got[GROUPS[1]])


def test_a_goodbye_over_an_auxiliary_connection_is_answered_and_closes_the_other(
    one: InProcessBroker,
) -> None:
    first, _ = taking(one)
    with RawClient(one.port, client=first.client, session=first.number, auxiliary=True) as keeper:
        keeper.call(Command.BYE)
        assert held(one, first.number) == 0
        with pytest.raises((Closed, OSError)):
            first.call(Command.PING)


def test_a_client_that_comes_back_while_it_is_leaving_has_another_session(
    one: InProcessBroker,
) -> None:
    first, _ = taking(one)
    core = one._server.core

    def leave() -> None:
        core.broker.clients.leave(core.now_us(), first.number)

    in_loop(one, leave)  # no turn gives anything back yet
    with RawClient(one.port, client=first.client, session=first.number) as back:
        assert not back.welcome.resumed
        assert back.number != first.number


@pytest.mark.parametrize("clean", [False, True])
async def test_a_stop_in_the_middle_gives_the_rest_back_at_the_next_start(
    one: InProcessBroker, clean: bool
) -> None:
    client, _ = taking(one)
    core = one._server.core

    def leave() -> None:
        core.broker.clients.leave(core.now_us(), client.number)
        core.touch()

    in_loop(one, leave)
    one.restart(clean=clean)
    await until(lambda: not held(one, client.number))
    with RawClient(one.port) as other:
        for group in GROUPS:
            (run,) = other.pull("t", group).runs
            assert (run.attempt, run.deliveries) == (1, 2)
