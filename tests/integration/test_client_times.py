"""Times of a wrong kind: an error of ours, which names the argument, before anything is asked."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

import ternmq
from ternmq.testing import InProcessBroker
from tests.integration.client_shapes import API

NAN = float("nan")
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - what is refused


@pytest.mark.parametrize("wrong", ["5", b"5", True, -1, -0.1, NAN, timedelta(seconds=-1), [5]])
async def test_seconds(api: API, real: InProcessBroker, wrong: Any) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t")
        await client.send("t", b"x")
        for name, call in (
            ("timeout", lambda: client.send("t", b"x", timeout=wrong)),
            ("timeout", lambda: client.flush(wrong)),
            ("timeout", lambda: client.prepare("t", [b"x"], writer="w", batch_id=1, timeout=wrong)),
            ("timeout", lambda: client.commit_prepared("w", 1, [], digest=0, timeout=wrong)),
            ("timeout", lambda: client.abort_prepared("w", 1, timeout=wrong)),
            ("wait", lambda: client.pull("t", group="g", wait=wrong)),
        ):
            with pytest.raises(ternmq.InvalidRequest, match=f"^{name} (is|must be)"):
                await call()
        with pytest.raises(ternmq.InvalidRequest, match=r"^max_wait (is|must be)"):
            async for _ in client.consume_batches("t", group="g", max_wait=wrong):
                pass
        with pytest.raises(ternmq.InvalidRequest, match=r"^after (is|must be)"):
            ternmq.Retry(after=wrong)
        batch = await client.pull("t", group="g")
        for name, call in (
            ("delay", lambda: batch[0].retry(wrong)),
            ("delay", lambda: batch.retry(delay=wrong)),
            ("seconds", lambda: batch[0].extend(wrong)),
        ):
            with pytest.raises(ternmq.InvalidRequest, match=f"^{name} (is|must be)"):
                await call()
        assert [one.offset for one in batch] == [0]
        await batch.ack()
        with pytest.raises(ternmq.InvalidRequest, match=r"^timeout (is|must be)"):
            await client.close(wrong)


@pytest.mark.parametrize("wrong", ["2026-01-01", 5.0, date(2026, 1, 1), NAIVE, True, b""])
async def test_moments(api: API, real: InProcessBroker, wrong: Any) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t")
        await client.admin.create_group("t", "g")
        for name, call in (
            ("since", lambda: client.find("t", key="k", since=wrong)),
            ("until", lambda: client.find("t", key="k", until=wrong)),
            ("since", lambda: client.replay("t", "g", since=wrong)),
            ("until", lambda: client.replay("t", "g", until=wrong)),
            ("to", lambda: client.admin.reset_group("t", "g", wrong)),
        ):
            with pytest.raises(ternmq.InvalidRequest, match=f"^{name} "):
                await call()
        for name in ("start", "stop"):
            with pytest.raises(ternmq.InvalidRequest, match=f"^{name}"):
                async for _ in client.read("t", **{name: wrong}):
                    pass


@pytest.mark.parametrize(
    "wrong", [-5, float("nan"), "5m", True, timedelta(), timedelta(days=-1), timedelta(days=50_000)]
)
async def test_durations(api: API, real: InProcessBroker, wrong: Any) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t")
        await client.admin.create_group("t", "g")
        for name, call in (
            ("retention", lambda: client.admin.create_topic("u", retention=wrong)),
            ("retention", lambda: client.admin.change_topic("t", retention=wrong)),
            ("lease", lambda: client.admin.change_group("t", "g", lease=wrong)),
        ):
            with pytest.raises(ternmq.InvalidRequest, match=f"^{name} (is|must be)"):
                await call()


async def test_what_is_right(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t", retention=timedelta(hours=1))
        await client.send("t", b"x", timeout=timedelta(seconds=5))
        await client.send("t", b"x", timeout=float("inf"))
        batch = await client.pull("t", group="g", wait=timedelta(seconds=5))
        await batch[0].extend(timedelta(minutes=5))
        await batch.ack()
        await client.flush(timedelta(seconds=5))
        since = datetime(2020, 1, 1, tzinfo=UTC)
        assert await client.find("t", key="k", since=since) == []
        await client.close(timedelta(seconds=5))
