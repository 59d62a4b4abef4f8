"""Messages of committed transactions count in the rates of ``top`` and of STATUS."""

from __future__ import annotations

import ternmq
from ternmq.cli.broker.top import Watcher
from ternmq.server.telemetry.counters import Counters
from ternmq.server.telemetry.rates import Rates
from ternmq.testing import InProcessBroker


async def test_top_counts_what_was_committed(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("t")
        watcher = Watcher(client)
        await watcher.look()
        tokens = await client.prepare("t", ["1", "2", "3"], writer="w", batch_id=1)
        assert (await watcher.look()).rates["stored"] == 0
        await client.commit_prepared("w", 1, tokens, digest=1)
        assert (await watcher.look()).rates["stored"] > 0


def test_the_rates_of_the_status_count_what_was_committed() -> None:
    counters = Counters()
    rates = Rates(counters)
    rates.look(10.0)
    counters.sent_rows += 100
    counters.committed_rows += 50
    rates.look(11.0)
    assert rates.sent == 150.0
