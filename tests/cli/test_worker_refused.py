"""A worker whose start the broker refuses: no new process would end in another way."""

from __future__ import annotations

import pytest

import ternmq
import ternmq.sync
from ternmq.cli.terminal.exits import ExitCode
from tests.black_box.process import DEADLINE
from tests.cli.workers import Start

CODE = """
import ternmq
client = ternmq.connect(app="right")

@client.checker("{topic}")
async def check(tx): return ternmq.Decision.UNKNOWN

@client.handler("{topic}", group="g")
async def handle(body): pass
"""


@pytest.mark.parametrize("count", [1, 2])
def test_a_producer_group_of_another_app(
    start: Start, client: ternmq.sync.Client, topic: str, count: int
) -> None:
    client.admin.put_producer_group(topic, app="other")
    worker = start(CODE, "--processes", count)
    assert worker.process.wait(DEADLINE) == ExitCode.NOT_ALLOWED
    said = [line for line in worker.said.splitlines() if "belongs to app 'other'" in line]
    # Each process says it once, and none is started again.
    assert len(said) in range(1, count + 1), worker.said
    assert all("`ternmq transaction policy GROUP --delete`" in line for line in said)
