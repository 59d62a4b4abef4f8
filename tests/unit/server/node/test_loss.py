"""An order that accepts a loss: when a broker that is no member leads by it, and when not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ternmq.cluster.coordination.group import Group
from ternmq.cluster.coordination.memory import MemoryCoordinator, Register
from ternmq.cluster.coordination.port import Swapped
from ternmq.cluster.coordination.wishes import Change, Copying, GroupSettings, Order
from ternmq.model.types import Position
from ternmq.server.node.node import Node
from tests.asynchronous import until
from tests.unit.server.node.kit import core_of
from tests.unit.server.node.test_coordinator import coordinator_of, pair, put

_numbers = iter(range(1, 1000))


def operator(register: Register) -> Group:
    return Group(MemoryCoordinator(register), "main", "operator", 9)


async def fall_out(register: Register, b: Node) -> None:
    """Have b follow without being a member."""
    settings = GroupSettings(copy=Copying.ASYNCHRONOUS)
    assert isinstance(await operator(register).put_settings(settings), Swapped)

    def out() -> bool:
        return b.sight.record is not None and b.me not in b.sight.record.members

    await until(out, "b knows that it is no member", 30)


async def accept(register: Register, a: Node, position: int = 0) -> None:
    """Order b to lead, and accept that what follows a position is lost."""
    assert a.sight.record is not None
    order = Order(
        change=Change.PROMOTE, broker="b", epoch=a.sight.record.epoch, at_us=next(_numbers),
        accepted=Position(position),
    )  # fmt: skip
    assert isinstance(await operator(register).put_order(order), Swapped)


def shown(register: Register, b: Node) -> bool:
    """Whether b has said how far all of its copy reaches."""
    replica, there = b._replica, b.sight.present.get("b")
    return (
        replica is not None
        and there is not None
        and there.reach is not None
        and there.reach == replica.reach
    )


async def test_an_order_is_refused_while_a_primary_runs_and_stays_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else it would be carried out when nobody thinks of it any more."""
    register = Register()
    async with pair(tmp_path, register) as (a, b):
        await fall_out(register, b)
        await put(a, "one")
        await accept(register, a)
        await until(lambda: b.candidate.void is not None, "b refuses", 30)
        assert "refused: a runs, and has what was answered" in caplog.text
        epoch = b.outlook._record.epoch if b.outlook._record else 0
        a.stopping.set()
        await until(lambda: "a" not in b.sight.present, "a is gone", 30)
        await until(lambda: shown(register, b), "b says how far its copy reaches", 30)
        await until(lambda: b._loyalty.may_stand(b._loyalty.until_us + 1_000_000))
        assert not b.candidate.may_be_forced(b._replica)  # type: ignore[arg-type]
        assert b.sight.record is not None
        assert (b.sight.record.primary, b.sight.record.epoch) == ("a", epoch)
        await accept(register, b)
        await until(lambda: b.server is not None, "b leads by a new order", 30)
        assert set(core_of(b).broker.views.holds) == {"one"}
        record = b.sight.record
        assert record is not None
        assert (record.cut_epoch, [one.broker for one in record.members]) == (epoch + 1, ["b"])


async def test_a_primary_that_is_heard_is_in_the_way_although_the_coordinator_lost_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    register = Register()
    async with pair(tmp_path, register) as (a, b):
        await fall_out(register, b)
        await until(lambda: b._replica is not None and b._replica.figures().connected)
        coordinator_of(a).cut = True
        coordinator_of(a).expire()
        await until(lambda: "a" not in b.sight.present, "the coordinator does not show a", 30)
        await accept(register, a)
        await until(lambda: b.candidate.void is not None, "b refuses", 30)
        assert "refused: a runs, and has what was answered" in caplog.text
        await put(a, "goes-on")
        coordinator_of(a).cut = False
        coordinator_of(a).tend()


async def test_a_copy_that_reaches_less_far_than_the_operator_was_told_does_not_lead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    register = Register()
    async with pair(tmp_path, register) as (a, b):
        await fall_out(register, b)
        a.stopping.set()
        await until(lambda: shown(register, b) and "a" not in b.sight.present, "a is gone", 30)
        await accept(register, b, position=1 << 40)
        await until(lambda: b.candidate.void is not None, "b refuses", 30)
        assert "and the operator accepted a loss from" in caplog.text
        await asyncio.sleep(0)
        assert b.server is None
