"""What a process reads and changes for its broker group; what is read is checked."""

from __future__ import annotations

import msgspec
import pytest

from ternmq.cluster.coordination.group import Group, everybody
from ternmq.cluster.coordination.memory import MemoryCoordinator, Register
from ternmq.cluster.coordination.port import Refused, Stored, Swapped, Unknown
from ternmq.cluster.coordination.record import (
    BadRecord,
    Leadership,
    Member,
    Progress,
    Reach,
    leadership_key,
    progress_key,
)
from ternmq.cluster.coordination.resolving import WentBack
from ternmq.cluster.coordination.wishes import (
    Change,
    Copying,
    Failover,
    GroupSettings,
    Order,
    order_key,
    pack_order,
    pack_settings,
    settings_key,
    unpack_order,
    unpack_settings,
)
from ternmq.model.types import Epoch, Position


def group(register: Register, broker: str = "a", incarnation: int = 7) -> Group:
    return Group(MemoryCoordinator(register), "main", broker, incarnation)


def record(one: Group, version: int = 1) -> Leadership:
    return Leadership(
        version=version,
        writer=one.writer(),
        journal=5,
        epoch=Epoch(1),
        primary="a",
        members=(Member("a", 7),),
    )


async def test_a_record_is_created_changed_and_read() -> None:
    register = Register()
    one, other = group(register), group(register, "b", 8)
    assert await one.read() is None
    first = record(one)
    assert await one.change(first) == Swapped(1)
    assert await other.read() == first
    assert isinstance(await other.change(record(other)), Refused)
    second = record(other, 2)
    assert await other.change(second) == Swapped(2)
    assert await one.read() == second


async def test_no_two_changes_have_one_writer() -> None:
    one = group(Register())
    assert one.writer() != one.writer()


async def test_a_record_that_went_back_is_not_believed() -> None:
    register = Register()
    one = group(register)
    await one.change(record(one))
    first = register.values[leadership_key("main")]
    await one.change(record(one, 2))
    register.values[leadership_key("main")] = first
    with pytest.raises(WentBack):
        await one.read()
    del register.values[leadership_key("main")]
    with pytest.raises(WentBack):
        await one.read()


async def test_progress_is_created_then_replaced_also_by_another_process() -> None:
    register = Register()
    one, other = group(register), group(register, "b", 8)
    assert await one.progress() is None
    for number in (1, 2, 3):
        told = Progress(Epoch(1), Position(number * 8))
        await one.put_progress(told)
        assert await other.progress() == told
    await other.put_progress(Progress(Epoch(2), Position(80)))
    await one.put_progress(Progress(Epoch(1), Position(88)))  # it did not know of the other's
    assert await one.progress() == Progress(Epoch(2), Position(80))
    await one.put_progress(Progress(Epoch(3), Position(96)))
    assert await other.progress() == Progress(Epoch(3), Position(96))


async def test_who_is_there() -> None:
    register = Register()
    one, other = group(register), group(register, "b", 8)
    await one.announce("host:1", tls=False, software="ternmq 1")
    await other.announce("host:2", tls=True, software="ternmq 1")
    stranger = Group(MemoryCoordinator(register), "another", "c", 9)
    await stranger.announce("host:3", tls=False, software="")
    coordinator = MemoryCoordinator(register)
    await coordinator.announce("d", b"\xff rubbish")
    await coordinator.announce(
        "e", msgspec.msgpack.encode({"group": "main", "broker": "a", "incarnation": 1,
                                     "address": "host:9"})
    )  # fmt: skip
    found = await one.present()
    assert not isinstance(found, Unknown)
    assert {name: (each.address, each.tls) for name, each in found.items()} == {
        "a": ("host:1", False),
        "b": ("host:2", True),
    }


async def test_settings_have_defaults_and_are_replaced() -> None:
    register = Register()
    one = group(register)
    assert await one.settings() == GroupSettings()
    wanted = GroupSettings(failover=Failover.OPERATOR, copy=Copying.ASYNCHRONOUS)
    assert isinstance(await one.put_settings(wanted), Swapped)
    assert await group(register, "b").settings() == wanted
    assert isinstance(await one.put_settings(GroupSettings()), Swapped)
    assert await one.settings() == GroupSettings()


async def test_an_order_is_given_and_replaced() -> None:
    one = group(Register())
    assert await one.order() is None
    for epoch in (1, 2):
        order = Order(change=Change.SWITCH, broker="b", epoch=Epoch(epoch))
        assert isinstance(await one.put_order(order), Swapped)
        assert await one.order() == order


def test_fields_of_later_versions_are_kept() -> None:
    value = msgspec.msgpack.encode({"format": 1, "failover": "reads", "zones": [1, 2]})
    settings = unpack_settings(value)
    assert settings.failover is Failover.READS
    again = msgspec.msgpack.decode(pack_settings(settings))
    assert again["zones"] == [1, 2]
    assert again["copy"] == "synchronous"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        msgspec.msgpack.encode([1]),
        msgspec.msgpack.encode({}),
        msgspec.msgpack.encode({"format": 2}),
        msgspec.msgpack.encode({"format": 1, "failover": "magic"}),
        msgspec.msgpack.encode({"format": 1, "read_only_behind_us": -1}),
        msgspec.msgpack.encode({"format": 1, "lease_us": 999_999}),
        msgspec.msgpack.encode({"format": 1, "lease_us": 60_000_001}),
        msgspec.msgpack.encode({"format": 1, "lease_us": "3s"}),
        msgspec.msgpack.encode({"format": 1, "silent_us": 2_400_001}),
        msgspec.msgpack.encode({"format": 1, "silent_us": 499_999}),
        msgspec.msgpack.encode({"format": 1, "lease_us": 1_000_000}),
        msgspec.msgpack.encode({"format": 1, "copies": 0}),
        msgspec.msgpack.encode({"format": 1, "copies": 2, "copy": "asynchronous"}),
        msgspec.msgpack.encode({"format": 1, "more": "x" * 5000}),
    ],
)
async def test_rubbish_is_no_settings(value: bytes) -> None:
    register = Register()
    register.values[settings_key("main")] = Stored(value, 1)
    with pytest.raises(BadRecord):
        await group(register).settings()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        msgspec.msgpack.encode({"format": 1, "change": "switch", "broker": "b"}),
        msgspec.msgpack.encode({"format": 1, "change": "x", "broker": "b", "epoch": 1}),
        msgspec.msgpack.encode({"format": 1, "change": "switch", "broker": "a b", "epoch": 1}),
        msgspec.msgpack.encode({"format": 1, "change": "switch", "broker": "b", "epoch": -1}),
        msgspec.msgpack.encode(
            {"format": 1, "change": "switch", "broker": "b", "epoch": 1, "more": 1}
        ),
    ],
)
async def test_rubbish_is_no_order(value: bytes) -> None:
    register = Register()
    register.values[order_key("main")] = Stored(value, 1)
    with pytest.raises(BadRecord):
        await group(register).order()


async def test_rubbish_is_no_progress() -> None:
    register = Register()
    register.values[progress_key("main")] = Stored(b"\xc1", 1)
    with pytest.raises(BadRecord):
        await group(register).progress()


def test_an_order_survives_its_bytes() -> None:
    order = Order(change=Change.PROMOTE, broker="b", epoch=Epoch(4), at_us=9)
    assert unpack_order(pack_order(order)) == order
    assert b"accepted" not in pack_order(order)  # an older broker reads it
    accepting = msgspec.structs.replace(order, accepted=Position(0))
    assert unpack_order(pack_order(accepting)) == accepting
    for wrong in (msgspec.structs.replace(accepting, change=Change.SWITCH),
                  msgspec.structs.replace(accepting, accepted=Position(-1))):  # fmt: skip
        with pytest.raises(BadRecord):
            pack_order(wrong)


async def test_a_broker_says_how_far_its_copy_reaches_when_it_knows() -> None:
    register = Register()
    one = group(register)
    await one.announce("a:7117", tls=False, software="")
    reach = Reach(Epoch(3), Position(9000), Position(8000))
    await one.announce("a:7117", tls=False, software="", reach=reach)
    found = await one.present()
    assert not isinstance(found, Unknown)
    assert found[one.broker].reach == reach


async def test_the_brokers_of_all_groups_are_found() -> None:
    register = Register()
    for name, its_group in (("b", "second"), ("a", "second"), ("z", "main")):
        one = Group(MemoryCoordinator(register), its_group, name, 5)
        await one.announce(f"{name}:7117", tls=False, software="ternmq 1")
    other = MemoryCoordinator(register)
    await other.announce("rubbish", b"rubbish")
    nowhere = Group(MemoryCoordinator(register), "main", "nowhere", 5)
    await nowhere.announce("no address", tls=False, software="ternmq 1")
    found = await everybody(other)
    assert not isinstance(found, Unknown)
    assert [(one.group, one.broker) for one in found] == [
        ("main", "z"), ("second", "a"), ("second", "b")
    ]  # fmt: skip
