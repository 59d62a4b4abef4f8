"""A damaged copy may be cut only if somebody else has the bytes, and nobody counts on this one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ternmq.cluster.coordination.memory import Register
from tests.asynchronous import until
from tests.unit.server.node.kit import node


async def test_when_a_damaged_copy_may_be_cut(tmp_path: Path) -> None:
    register = Register()
    a, b = (node(tmp_path / name, register, name) for name in "ab")
    await a.start()
    leading = asyncio.create_task(a.run())
    await until(lambda: a.server is not None, "a leads")
    await b.start()
    assert not await b._may_mend(), "who leads is not known yet"
    await b.sight.look()
    assert await b._may_mend()
    b._had_a_copy = True
    assert not await b._may_mend(), "this process may be a member"
    b._had_a_copy = False
    a.stopping.set()
    await leading
    assert "a" in b.sight.present  # as the coordinator showed it last
    assert not await b._may_mend(), "nobody listens there any more"
    b.stopping.set()
    await b.run()
