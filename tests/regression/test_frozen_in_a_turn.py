"""A broker frozen in the middle of a turn ended leases before it read what clients had sent.

So it was nearly always when an answer had just left: the rest of its turn ran after the freeze, and
the broker took the end of this turn for a sign that it had not been frozen.
"""

from __future__ import annotations

import asyncio
import time

import ternmq.sync
from ternmq.testing import broker

LEASE_S = 1.0


def test_what_clients_sent_meanwhile_counts_before_the_end_of_leases() -> None:
    with broker(manual=False) as one, ternmq.sync.connect(one.url) as client:
        client.admin.create_group("orders", "g", start="earliest", lease=LEASE_S)
        client.send("orders", "a")
        (held,) = client.pull("orders", group="g", wait=10)
        core = one._server.core
        before = core.on_turn

        def frozen() -> None:
            core.on_turn = before
            time.sleep(3 * LEASE_S)  # stands for SIGSTOP and SIGCONT in a turn
            before()

        async def freeze() -> None:
            core.on_turn = frozen
            core.touch()

        asyncio.run_coroutine_threadsafe(freeze(), core.loop).result(20)
        with ternmq.sync.connect(one.url) as other:
            assert list(other.pull("orders", group="g", wait=2 * LEASE_S)) == []
        held.ack()
        assert not held.lost
