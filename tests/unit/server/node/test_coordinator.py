"""A pair beside a coordinator that is away, or that holds rubbish."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ternmq.cluster.coordination.memory import MemoryCoordinator, Register
from ternmq.cluster.coordination.wishes import order_key, settings_key
from ternmq.server.node.node import Node
from tests.asynchronous import until
from tests.unit.server.node.kit import core_of, has_member, node


@contextlib.asynccontextmanager
async def pair(folder: Path, register: Register) -> AsyncIterator[tuple[Node, Node]]:
    """Run two brokers: the first one leads, the second one is a member."""
    a, b = (node(folder / name, register, name) for name in "ab")
    running: list[asyncio.Task[int]] = []
    try:
        for one in (a, b):
            await one.start()
            running.append(asyncio.create_task(one.run()))
            await until(lambda: a.server is not None, "a leads", 30)
        await until(lambda: has_member(a), "b is a member", 30)
        yield a, b
    finally:
        for one in (b, a):
            one.stopping.set()
        await asyncio.gather(*running)


def coordinator_of(one: Node) -> MemoryCoordinator:
    assert isinstance(one._coordinator, MemoryCoordinator)
    return one._coordinator


async def put(one: Node, name: str) -> None:
    """Store something, and wait until it is committed: the member has it."""
    core = core_of(one)
    core.broker.holding.put(core.now_us(), name, 0)
    end = core.broker.journal.end
    core.touch()
    await until(lambda: core.broker.journal.committed >= end, f"{name} is committed")


async def test_a_follower_comes_back_while_the_coordinator_is_away(tmp_path: Path) -> None:
    """By the record that it knows: else nobody would be answered until the coordinator is back."""
    async with pair(tmp_path, Register()) as (a, b):
        for one in (a, b):
            coordinator_of(one).cut = True
        await until(lambda: b.sight.away, "b knows that the coordinator is away", 30)
        reign = a.reigning
        assert reign is not None
        assert reign.primary is not None
        (link,) = reign.primary._links
        link.cut("the test breaks it")
        await put(a, "without-a-coordinator")
        assert has_member(a)
        for one in (a, b):
            coordinator_of(one).cut = False


async def test_rubbish_among_what_operators_ask_for_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    register = Register()
    async with pair(tmp_path, register) as (a, b):
        coordinator = coordinator_of(a)
        for key in (settings_key("main"), order_key("main")):
            await coordinator.create(key, b"\xc1rubbish")
        await until(lambda: a.sight._rubbish and b.sight._rubbish, "both have seen it", 30)
        await put(a, "beside-rubbish")
        a.stopping.set()
        await until(lambda: b.server is not None, "b leads", 30)
        assert set(core_of(b).broker.views.holds) == {"beside-rubbish"}
        said = [one for one in caplog.messages if "what operators asked for cannot be read" in one]
        assert len(said) == 2, "each broker says it once"
