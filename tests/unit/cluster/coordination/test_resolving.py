"""A change whose answer was lost: what is known then, and that it is made at most once."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from ternmq.cluster.coordination.memory import Fate, MemoryCoordinator, Register
from ternmq.cluster.coordination.port import Outcome, Refused, Stored, Swapped, Unknown
from ternmq.cluster.coordination.record import BadRecord, Leadership, Member, Writer, pack
from ternmq.cluster.coordination.resolving import ATTEMPTS, WentBack, change, resolve
from ternmq.model.types import Epoch

KEY = "leadership/g"


def record(version: int, by: str = "a", counter: int = 1) -> Leadership:
    return Leadership(
        version=version,
        writer=Writer(by, 1, counter),
        journal=1,
        epoch=Epoch(version),
        primary=by,
        members=(Member(by, 1),),
    )


@pytest.fixture
def register() -> Register:
    return Register()


@pytest.fixture
def store(register: Register) -> MemoryCoordinator:
    return MemoryCoordinator(register)


async def test_a_change_that_is_answered_is_sent_once(store: MemoryCoordinator) -> None:
    assert await change(store, KEY, record(1)) == Swapped(1)
    assert await change(store, KEY, record(2, counter=2)) == Swapped(2)
    assert store.changes == 2
    assert await change(store, KEY, record(2, "b")) == Refused()
    assert await change(store, KEY, record(1, "b")) == Refused()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("fates", list(itertools.product(Fate, repeat=2)))
async def test_lost_answers_change_the_record_once(
    register: Register, store: MemoryCoordinator, version: int, fates: tuple[Fate, ...]
) -> None:
    if version == 2:
        register.values[KEY] = Stored(pack(record(1)), 1)
    store.fates.extend(fates)
    wanted = record(version, counter=5)
    assert await change(store, KEY, wanted) == Swapped(version)
    assert register.values[KEY] == Stored(pack(wanted), version)
    assert set(store.deliver()) <= {Refused()}
    assert register.values[KEY] == Stored(pack(wanted), version)


async def test_a_change_whose_answers_are_all_lost_is_unknown(store: MemoryCoordinator) -> None:
    store.fates.extend([Fate.LATE] * ATTEMPTS)
    wanted = record(1)
    assert isinstance(await change(store, KEY, wanted), Unknown)
    assert isinstance(await resolve(store, KEY, wanted), Unknown)
    assert store.deliver() == [Swapped(1), Refused(), Refused()]
    assert await resolve(store, KEY, wanted) == Swapped(1)
    # Who goes on with the same record learns the same.
    assert await change(store, KEY, wanted) == Swapped(1)


async def test_a_late_change_loses_against_another(
    register: Register, store: MemoryCoordinator
) -> None:
    await change(store, KEY, record(1))
    store.fates.append(Fate.LATE)
    mine = record(2, counter=2)
    assert isinstance(await store.swap(KEY, 1, pack(mine)), Unknown)
    assert isinstance(await resolve(store, KEY, mine), Unknown)
    other = MemoryCoordinator(register)
    assert await change(other, KEY, record(2, "b")) == Swapped(2)
    assert await resolve(store, KEY, mine) == Refused()
    assert store.deliver() == [Refused()]


async def test_a_change_that_was_replaced_is_over(
    register: Register, store: MemoryCoordinator
) -> None:
    await change(store, KEY, record(1))
    store.fates.append(Fate.MADE)
    mine = record(2, counter=2)
    await store.swap(KEY, 1, pack(mine))
    other = MemoryCoordinator(register)
    assert await change(other, KEY, record(3, "b")) == Swapped(3)
    assert await resolve(store, KEY, mine) == Refused()
    assert await change(store, KEY, mine) == Refused()


async def test_no_connection_leaves_it_unknown(store: MemoryCoordinator) -> None:
    store.cut = True
    outcome: Outcome = await change(store, KEY, record(1))
    assert isinstance(outcome, Unknown)
    assert store.changes == ATTEMPTS
    store.cut = False
    assert isinstance(await resolve(store, KEY, record(1)), Unknown)


@pytest.mark.parametrize("held", [None, Stored(pack(record(1)), 1)])
async def test_a_store_that_forgot_a_version_is_told(
    register: Register, store: MemoryCoordinator, held: Stored | None
) -> None:
    if held is not None:
        register.values[KEY] = held
    with pytest.raises(WentBack, match="was at version 4"):
        await resolve(store, KEY, record(5))
    with pytest.raises(WentBack):
        await change(store, KEY, record(5))


async def test_rubbish_resolves_nothing(register: Register, store: MemoryCoordinator) -> None:
    register.values[KEY] = Stored(b"rubbish", 2)
    with pytest.raises(BadRecord):
        await resolve(store, KEY, record(2))
    with pytest.raises(BadRecord):
        await change(store, KEY, record(2))
    assert register.values[KEY] == Stored(b"rubbish", 2)


async def test_an_invalid_change_is_not_sent(store: MemoryCoordinator) -> None:
    with pytest.raises(BadRecord):
        await change(store, KEY, msgspec.structs.replace(record(1), members=()))
    assert store.changes == 0
