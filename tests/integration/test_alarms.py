"""Alarms of a broker, as operators see them: listed, counted, logged, cleared."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

import ternmq
import ternmq.sync
from ternmq.model.errors import Forbidden
from ternmq.testing import InProcessBroker, broker
from ternmq.testing.clock import START_US

HOLDS = ternmq.RetryPolicy(attempts=1, exhausted="hold")


def names(client: ternmq.sync.Client) -> list[tuple[str, str]]:
    return [(one.name, one.subject) for one in client.admin.alarms()]


def hold_a_key(client: ternmq.sync.Client) -> None:
    client.admin.create_topic("orders", ordered=True)
    client.admin.create_group("orders", "billing", retry=HOLDS)
    client.send("orders", b"x", ordering_key="a")
    (delivery,) = client.pull("orders", group="billing")
    delivery.retry()


def wait_for(one: InProcessBroker, seconds: int) -> None:
    for _ in range(seconds):
        one.clock.advance(seconds=1)


def test_a_held_key_is_listed_counted_and_cleared_when_it_goes_on() -> None:
    with broker() as one, ternmq.sync.connect(one.url) as client:
        assert client.admin.alarms() == []
        hold_a_key(client)
        wait_for(one, 2)
        (alarm,) = client.admin.alarms()
        assert (alarm.name, alarm.subject) == ("held", "orders/billing/0")
        assert alarm.since_us - START_US < 3_000_000
        assert alarm.since == client.admin.alarms()[0].since
        status = client.admin.status()
        assert status.alarms == 1
        assert status.metrics['ternmq_alarms{alarm="held"}'] == 1
        assert status.metrics['ternmq_alarms{alarm="clock"}'] == 0
        one.restart(clean=False)
        assert names(client) == [("held", "orders/billing/0")]
        client.deadletters.retry("orders", "billing", queue=0, offsets=[0])
        (delivery,) = client.pull("orders", group="billing")
        delivery.ack()
        wait_for(one, 14)
        assert client.admin.alarms() == []
        assert client.admin.status().alarms == 0


def test_an_owner_that_takes_nothing_is_named_until_it_goes_on() -> None:
    with broker() as one, ternmq.sync.connect(one.url, instance="billing-1") as client:
        client.admin.create_topic("orders", queues=2)
        client.admin.create_group("orders", "billing", mode="owned", assign={"billing-*": [0]})
        client.send("orders", b"x", queue=0)
        client.send("orders", b"y", queue=1)
        (delivery,) = client.pull("orders", group="billing")
        delivery.ack()
        client.send("orders", b"z", queue=0)
        wait_for(one, 11 * 60)
        assert names(client) == [
            ("owner-idle", "orders/billing"),
            ("queue-unowned", "orders/billing"),
        ]
        texts = [alarm.text for alarm in client.admin.alarms()]
        assert "queue 0: its owner billing-1/" in texts[0]
        assert "queue 1, which belongs to nobody" in texts[1]
        metrics = client.admin.status().metrics
        assert metrics['ternmq_alarms{alarm="owner-idle"}'] == 1
        assert (metrics["ternmq_members"], metrics["ternmq_unowned_queues"]) == (1, 1)
        assert metrics['ternmq_group_unowned_queues{group="billing",topic="orders"}'] == 1
        (delivery,) = client.pull("orders", group="billing")
        delivery.ack()
        client.admin.change_group("orders", "billing", assign={"billing-*": [0, 1]})
        (delivery,) = client.pull("orders", group="billing")
        delivery.ack()
        wait_for(one, 14)
        assert names(client) == []
        metrics = client.admin.status().metrics
        assert (metrics["ternmq_members"], metrics["ternmq_unowned_queues"]) == (1, 0)


def test_a_gap_of_the_clock_is_an_alarm() -> None:
    with broker() as one, ternmq.sync.connect(one.url) as client:
        one.clock.jump_wall(hours=3)
        wait_for(one, 2)
        assert names(client) == [("clock", "")]
        client.admin.accept_clock()
        wait_for(one, 13)
        assert names(client) == []


async def test_an_operator_clears_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ternmq.audit")
    with broker() as one:
        async with ternmq.connect(one.url) as client:
            core = one._server.core
            core.loop.call_soon_threadsafe(
                lambda: core.broker.alarms.raise_(core.now_us(), "due-unreadable", "t", "why")
            )
            assert [alarm.text for alarm in await client.admin.alarms()] == ["why"]
            assert await client.admin.clear_alarm("due-unreadable", "t")
            assert not await client.admin.clear_alarm("due-unreadable", "t")
            assert await client.admin.alarms() == []
    (first, _) = [line for line in caplog.messages if "ALARM_CLEAR" in line]
    assert "target='due-unreadable t'" in first


def test_only_who_may_manage_everything_sees_and_clears_them() -> None:
    token = "the-token-of-the-admin"
    with (
        broker(settings={"auth": True, "admin_token": token}) as one,
        ternmq.sync.connect(one.url, app="admin", token=token) as admin,
    ):
        given = admin.admin.put_app("shop", grants=["manage:orders"], new_token=True)
        with ternmq.sync.connect(one.url, app="shop", token=given) as shop:
            with pytest.raises(Forbidden):
                shop.admin.alarms()
            with pytest.raises(Forbidden):
                shop.admin.clear_alarm("held", "orders/billing/0")
            assert shop.admin.status().alarms == 0
        assert admin.admin.alarms() == []


def test_many_days_raise_nothing() -> None:
    with broker() as one, ternmq.sync.connect(one.url) as client:
        client.send("t", b"x")
        one.clock.advance(timedelta(days=1))
        assert client.admin.alarms() == []
