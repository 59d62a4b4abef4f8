"""Values that are far too long: refused before anything is sent, in a text that is short."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker, broker
from ternmq.wire import control
from ternmq.wire.commands import Command
from tests.integration.client_shapes import API
from tests.integration.raw import RawClient

HUGE = "x" * 3_000_000
CALLS: dict[str, Callable[[Any], Any]] = {
    "transactions of a group": lambda c: c.admin.checked_transactions(HUGE),
    "transactions of a query id": lambda c: c.admin.checked_transactions(query_id=HUGE),
    "owner of a producer group": lambda c: c.admin.put_producer_group("g", app=HUGE),
    "a grant": lambda c: c.admin.put_app("a", [HUGE]),
    "the topic of a grant": lambda c: c.admin.put_app("a", [f"audit:{HUGE}"]),
    "a topic": lambda c: c.send(HUGE, b""),
    "a group": lambda c: c.admin.groups("t", HUGE),
    "the id of a message": lambda c: c.cancel("t", HUGE),
}


async def _stats(client: Any) -> ternmq.ClientStats:
    found = client.stats()
    stats: ternmq.ClientStats = await found if inspect.isawaitable(found) else found
    return stats


@pytest.mark.parametrize("what", CALLS)
async def test_it_is_refused_without_a_request(api: API, real: InProcessBroker, what: str) -> None:
    async with api.connect(real.url, timeout=5) as client:
        await client.send("t", b"")
        before = await _stats(client)
        with pytest.raises(ternmq.InvalidRequest) as caught:
            await CALLS[what](client)
        after = await _stats(client)
        assert len(str(caught.value)) < 400
        assert after.bytes_sent - before.bytes_sent < 10_000
        assert after.reconnects == before.reconnects


async def test_a_request_that_is_larger_than_a_frame(real: InProcessBroker) -> None:
    """Whatever it is: the broker would end the connection, and the next one, and the next one."""
    async with ternmq.connect(real.url, timeout=5) as client:
        body = control.encode(control.HoldPut(name="h", position=0, note=HUGE, back=False))
        with pytest.raises(ternmq.InvalidRequest, match=r"of 3,000,\d\d\d bytes; the broker takes"):
            await client._session.ask(Command.HOLD_PUT, body)
        assert client.stats().reconnects == 0


async def test_a_request_that_ends_every_connection_costs_pauses(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reason is: the client does not connect again without a pause in between."""
    monkeypatch.setattr("ternmq.client.connection.session._check_size", lambda *_: None)
    async with ternmq.connect(real.url, timeout=2) as client:
        body = control.encode(control.HoldPut(name="h", position=0, note=HUGE, back=False))
        with pytest.raises((ternmq.ConnectionLost, ternmq.CannotConnect)):
            await client._session.ask(Command.HOLD_PUT, body)
        assert 1 < client.stats().reconnects < 20


@pytest.mark.parametrize("app", ["a b", "x" * 300, "\x1b[31mred", "."])
async def test_a_producer_group_whose_owner_is_no_name(
    api: API, real: InProcessBroker, app: str
) -> None:
    async with api.connect(real.url) as client:
        with pytest.raises(ternmq.InvalidName):
            await client.admin.put_producer_group("g", app=app)
        assert await client.admin.producer_groups() == []
    put = control.encode(control.ProducerGroupPut(group="g", app=app))
    with RawClient(real.port) as raw, pytest.raises(ternmq.InvalidName):
        raw.wait(raw.ask(Command.PRODUCER_GROUP_PUT, put))


BOUNDS: dict[str, Any] = {"factor": 101, "jitter": 1, "attempts": 0, "then": "sell", "cap": 1e9}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("factor", "at most 100, not 101"),
        ("jitter", "below 1, not 1"),
        ("attempts", "1 or more, not 0"),
        ("then", "one of 'park', 'roll-back', 'commit', not 'sell'"),
        ("cap", "at most a day"),
    ],
)
async def test_a_bound_of_a_producer_group_is_in_the_text(
    api: API, real: InProcessBroker, name: str, told: str
) -> None:
    async with api.connect(real.url) as client:
        with pytest.raises(ternmq.InvalidRequest, match=f"^{name} .*{told}"):
            await client.admin.put_producer_group("g", **{name: BOUNDS[name]})


async def test_more_names_than_a_request_can_have(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        for topic in ("a", "b", "z"):
            await client.admin.create_topic(topic)
        names = [f"t{number}" for number in range(20_000)]
        found = await client.admin.topics(["z", *names, "b", "b"])
        assert [one.spec.name for one in found] == ["b", "z"]
        assert await client.admin.topics([]) == []


@pytest.mark.parametrize("query_id", ["x" * 256, "é" * 128, "a\nb", "\x7f"])
async def test_a_query_id_is_checked_when_the_transaction_is_made(
    api: API, real: InProcessBroker, query_id: str
) -> None:
    async with api.connect(real.url) as client:
        with pytest.raises(ternmq.InvalidRequest, match="query id"):
            client.transaction("g", query_id=query_id)


def test_the_log_line_of_a_message_that_is_not_sent(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ternmq")
    with ternmq.sync.connect(real.url) as client:
        client.send_soon(HUGE, b"")
        with pytest.raises(ternmq.UnsentMessages):
            client.flush()
    (line,) = [one for one in caplog.messages if "not sent" in one]
    assert len(line) < 500


def test_the_disk_of_a_test_broker() -> None:
    with pytest.raises(ternmq.InvalidRequest, match="not an int"), broker(disk=3):  # type: ignore[arg-type]
        pass


async def test_batches_that_no_broker_takes(real: InProcessBroker) -> None:
    """The largest that can be set are taken by a broker with the default settings."""
    address = ternmq.connect(real.url).options.address
    with pytest.raises(ternmq.InvalidRequest, match="batch_bytes must be at most 1048576"):
        ternmq.Options(address=address, batch_bytes=(1 << 20) + 1)
    options = ternmq.Options(address=address, batch_bytes=1 << 20, batch_rows=1 << 20)
    async with ternmq.Client(options) as client:
        for size in (0, 1, 1000):
            receipts = await client.send_many("t", [b"y" * size] * 20_000)
            assert len(receipts) == 20_000
        assert client.stats().reconnects == 0
