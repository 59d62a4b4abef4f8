"""Two processes with the name of one broker: the second one is told so, and changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from ternmq.cluster.coordination.group import Group
from ternmq.cluster.coordination.memory import MemoryCoordinator, Register
from ternmq.cluster.coordination.port import Swapped
from ternmq.cluster.coordination.record import Leadership
from ternmq.model.errors import SettingsError
from ternmq.server.node.node import Node
from tests.asynchronous import until
from tests.unit.server.node.kit import node


async def ended(one: Node) -> None:
    one.stopping.set()
    await one.run()


async def test_a_name_belongs_to_one_process(tmp_path: Path) -> None:
    register = Register()
    one, other, later = (node(tmp_path / name, register) for name in ("1", "2", "3"))
    await one.start()
    with pytest.raises(SettingsError, match=r"have the name 'a': one runs at 127\.0\.0\.1"):
        await other.start()
    await ended(other)
    await ended(one)
    await later.start()
    await ended(later)


async def test_a_name_that_another_process_led_under_ends_this_one(tmp_path: Path) -> None:
    """What both were told to be their address is the same: the one that was first finds out."""
    register = Register()
    one = node(tmp_path / "1", register)
    await one.start()
    leading = asyncio.create_task(one.run())
    await until(lambda: one.server is not None, "it leads")
    other = Group(MemoryCoordinator(register), "main", "a", one.incarnation + 1)
    while True:  # the reign may be writing the record at the same time
        record = await other.read()
        assert isinstance(record, Leadership)
        changed = msgspec.structs.replace(
            record, version=record.version + 1, epoch=record.epoch + 1, writer=other.writer()
        )
        if isinstance(await other.change(changed), Swapped):
            break
    with pytest.raises(SettingsError, match="have the name 'a': another one has begun to lead"):
        await leading
