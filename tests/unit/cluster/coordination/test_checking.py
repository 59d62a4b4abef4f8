"""A store that is no coordinator is found out, as far as a look can."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ternmq.cluster.coordination.checking import KEY, DoesNotAnswer, Unfit, check
from ternmq.cluster.coordination.memory import MemoryCoordinator, Register
from ternmq.cluster.coordination.port import Announced, Outcome, Stored, Swapped, Unknown

AWAY = Unknown("it is away")


class Forgetful(MemoryCoordinator):
    """A coordinator with one fault."""

    def __init__(self, register: Register, fault: str) -> None:
        super().__init__(register)
        self.fault = fault
        self.calls = 0

    async def read(self, key: str) -> Stored | Unknown | None:
        self.calls += 1
        if self.fault == f"read {self.calls}":
            return AWAY
        if self.fault == "reads an older value" and self.calls > 1:
            return Stored(b"older", 1)
        if self.fault == "reads nothing" and self.calls > 1:
            return None
        return await super().read(key)

    async def create(self, key: str, value: bytes) -> Outcome:
        if self.fault == "create":
            return AWAY
        if self.fault == "creates twice" and self.calls > 1:
            return Swapped(1)
        return await super().create(key, value)

    async def swap(self, key: str, version: int, value: bytes) -> Outcome:
        found = await super().read(key)
        assert isinstance(found, Stored)
        if self.fault == "swap" or (self.fault == "an old swap" and version < found.version):
            return AWAY
        if self.fault == "replaces what is older":
            return await super().swap(key, found.version, value)
        return await super().swap(key, version, value)

    async def announce(self, name: str, value: bytes) -> Announced | Unknown:
        return AWAY if self.fault == "announce" else await super().announce(name, value)

    async def announced(self) -> Mapping[str, bytes] | Unknown:
        if self.fault == "announced":
            return AWAY
        return {} if self.fault == "announces nothing" else await super().announced()


async def checked(register: Register, fault: str) -> None:
    coordinator = Forgetful(register, fault)
    try:
        await check(coordinator)
    finally:
        await coordinator.close()


async def test_one_that_works_may_be_checked_again() -> None:
    register = Register()
    for version in (1, 2, 3):
        await checked(register, "")
        assert register.values[KEY].version == version


@pytest.mark.parametrize(
    "fault", ["read 1", "read 2", "create", "swap", "an old swap", "announce", "announced"]
)
async def test_no_answer(fault: str) -> None:
    register = Register()
    if "swap" in fault:
        await checked(register, "")
    with pytest.raises(DoesNotAnswer, match="it is away"):
        await checked(register, fault)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("reads an older value", "reads from a replica"),
        ("reads nothing", "reads from a replica"),
        ("creates twice", "creates what is there"),
        ("replaces what is older", "was replaced already"),
        ("announces nothing", "is not there"),
    ],
)
async def test_no_coordinator(fault: str, said: str) -> None:
    register = Register()
    await checked(register, "")
    with pytest.raises(Unfit, match=said):
        await checked(register, fault)
