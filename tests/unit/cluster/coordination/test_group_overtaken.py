"""What a process reads of its broker group, when answers overtake each other."""

from __future__ import annotations

import asyncio

import pytest

from ternmq.cluster.coordination.group import Group
from ternmq.cluster.coordination.memory import MemoryCoordinator, Register
from ternmq.cluster.coordination.port import Stored, Swapped, Unknown
from ternmq.cluster.coordination.record import Leadership, Member, leadership_key
from ternmq.cluster.coordination.resolving import WentBack
from ternmq.model.types import Epoch


class Slow(MemoryCoordinator):
    """A coordinator whose answers to readings wait until they are let go."""

    def __init__(self, register: Register) -> None:
        super().__init__(register)
        self.gates: list[asyncio.Event] = []

    async def read(self, key: str) -> Stored | Unknown | None:
        found = await super().read(key)
        if self.gates:
            await self.gates.pop(0).wait()
        return found


def record(group: Group, version: int) -> Leadership:
    return Leadership(
        version=version,
        writer=group.writer(),
        journal=1,
        epoch=Epoch(version),
        primary="a",
        members=(Member("a", 1),),
    )


async def test_a_reading_that_a_newer_answer_overtakes_is_made_again() -> None:
    coordinator = Slow(Register())
    group = Group(coordinator, "main", "a", 1)
    assert isinstance(await group.change(record(group, 1)), Swapped)
    gate = asyncio.Event()
    coordinator.gates.append(gate)
    reading = asyncio.create_task(group.read())
    await asyncio.sleep(0)
    assert isinstance(await group.change(record(group, 2)), Swapped)
    gate.set()
    found = await reading
    assert isinstance(found, Leadership)
    assert found.version == 2


async def test_a_coordinator_that_forgot_a_change_is_noticed() -> None:
    register = Register()
    group = Group(MemoryCoordinator(register), "main", "a", 1)
    await group.change(record(group, 1))
    old = register.values[leadership_key("main")]
    await group.change(record(group, 2))
    register.values[leadership_key("main")] = old
    with pytest.raises(WentBack, match="was at version 2, and is at 1"):
        await group.read()
    register.values.clear()
    with pytest.raises(WentBack, match="and is gone"):
        await group.read()
