"""The coordinator in memory: the contract of all, and what tests may do to it."""

from __future__ import annotations

import pytest

from ternmq.cluster.coordination.memory import Fate, MemoryCoordinator, Register
from ternmq.cluster.coordination.port import Announced, Refused, Stored, Swapped, Unknown
from tests.integration.cluster.contract import KEY, Contract
from tests.integration.cluster.stores import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


class TestMemory(Contract):
    """The contract."""


async def test_a_change_may_be_lost_in_three_ways() -> None:
    register = Register()
    one = MemoryCoordinator(register)
    one.fates.extend([Fate.DROPPED, Fate.LATE, Fate.MADE])
    assert isinstance(await one.create(KEY, b"dropped"), Unknown)
    assert register.read(KEY) is None
    assert isinstance(await one.create(KEY, b"late"), Unknown)
    assert register.read(KEY) is None
    assert isinstance(await one.create(KEY, b"made"), Unknown)
    assert register.read(KEY) == Stored(b"made", 1)
    assert one.deliver() == [Refused()]
    assert one.deliver() == []
    assert await one.swap(KEY, 1, b"next") == Swapped(2)


async def test_a_cut_answers_nothing() -> None:
    register = Register()
    one = MemoryCoordinator(register)
    one.cut = True
    for answer in (
        await one.read(KEY),
        await one.create(KEY, b""),
        await one.announce("a", b""),
        await one.announced(),
    ):
        assert isinstance(answer, Unknown)
    one.tend()
    assert register.announced() == {}
    one.cut = False
    one.tend()
    assert register.announced() == {"a": b""}


async def test_what_expired_is_announced_again_unless_another_has_the_name() -> None:
    register = Register()
    one, two = MemoryCoordinator(register), MemoryCoordinator(register)
    assert await one.announce("a", b"1") == Announced()
    one.expire()
    assert register.announced() == {}
    one.tend()
    assert register.announced() == {"a": b"1"}
    await two.announce("a", b"2")
    one.tend()
    assert register.announced() == {"a": b"2"}
    two.killed()
    assert register.announced() == {}
    one.tend()
    assert register.announced() == {"a": b"1"}
