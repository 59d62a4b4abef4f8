"""Each message of a list brought its whole batch along: a page of a hundred was 25 MB."""

from __future__ import annotations

from ternmq.record.fact.facts import Outcome
from ternmq.testing import InProcessBroker
from ternmq.wire import control
from ternmq.wire.commands import Command
from tests.integration.client_shapes import API
from tests.integration.raw import RawClient

ROWS = 500
LARGE = 200_000


async def test_of_dead_letters(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        await client.admin.create_group("orders", "g")
        await client.send_many("orders", [b"%d" % n + bytes(400) for n in range(ROWS)])
        seen = 0
        while seen < ROWS:
            batch = await client.pull("orders", group="g", max_messages=ROWS, wait=10)
            seen += len(batch)
            await batch.reject(reason="bad")
        with RawClient(real.port) as raw:
            asked = control.FailedList(topic="orders", group="g", dead=True, limit=ROWS)
            answer = raw.call(Command.FAILED_LIST, control.encode(asked))
            assert len(answer) < 2 * ROWS * 500
        dead = [one async for one in client.deadletters.browse("orders", "g")]
        assert [one.message.body for one in dead] == [b"%d" % n + bytes(400) for n in range(ROWS)]


async def test_pages_of_large_messages_end_early(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        for n in range(20):
            await client.send("orders", b"%d" % n + bytes(LARGE), key="k")
        with RawClient(real.port) as raw:
            asked = control.Find(topic="orders", key="k", limit=1000)
            answer = raw.call(Command.FIND, control.encode(asked))
            assert len(answer) < (1 << 20) + 2 * LARGE
            page = control.decode_answer(answer, control.FoundPage)
            assert page.next
            raw.join("orders", "g")
            for _ in range(20):
                pulled = raw.pull("orders", "g", 1)
                raw.settle("orders", "g", pulled, Outcome.DEAD, reason="bad")
            failed = control.FailedList(topic="orders", group="g", dead=True, limit=1000)
            answer = raw.call(Command.FAILED_LIST, control.encode(failed))
            assert len(answer) < (1 << 20) + 2 * LARGE
            assert control.decode_answer(answer, control.FailedPage).more
        found = await client.find("orders", key="k", limit=100)
        assert [one.body[:2].strip(b"\0") for one in found] == [
            b"%d" % n for n in reversed(range(20))
        ]
        dead = [one async for one in client.deadletters.browse("orders", "g")]
        assert len(dead) == 20
