"""An older broker that ignores settings of topics and groups: the client notices."""

from __future__ import annotations

import pytest

import ternmq
from ternmq.client.declaration.policy import spec_of
from ternmq.client.declaration.source import Source
from ternmq.model.specs import SubscriptionSpec
from ternmq.wire import control
from ternmq.wire.commands import Command
from tests.unit.client.fake import FakeBroker

EXPIRING = ternmq.RetryPolicy(expires=60)


async def test_levels_and_expiry_of_topics() -> None:
    async with FakeBroker() as broker, ternmq.connect(broker.url) as client:
        with pytest.raises(ternmq.InvalidRequest, match="too old for levels="):
            await client.admin.create_topic("t", levels=3)
        with pytest.raises(ternmq.InvalidRequest, match="too old for expires_after="):
            await client.admin.create_topic("t", expires_after=60)
        with pytest.raises(ternmq.InvalidRequest, match="too old for expires_after="):
            await client.admin.change_topic("t", expires_after=60)
        await client.admin.create_topic("t")
        await client.admin.change_topic("t", queues=2)


async def test_expiry_of_retries() -> None:
    async with FakeBroker() as broker, ternmq.connect(broker.url) as client:
        spec = SubscriptionSpec()
        broker.on[Command.GROUP_JOIN] = lambda _: control.encode(
            control.GroupJoined(created=True, spec=spec, queues=1)
        )
        with pytest.raises(ternmq.GroupSettingsMismatch, match=r"too old for RetryPolicy"):
            await client.admin.create_group("t", "g", retry=EXPIRING)
        await client.admin.create_group("t", "g", retry=ternmq.RetryPolicy())
    Source("t", "g", retry=EXPIRING).check_joined(SubscriptionSpec(retry=spec_of(EXPIRING)))
    Source("t", "g").check_joined(SubscriptionSpec(retry=spec_of(EXPIRING)))


async def test_expiry_of_retries_that_is_set_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeBroker() as broker, ternmq.connect(broker.url) as client:

        async def group(topic: str, name: str) -> control.GroupInfo:
            return control.GroupInfo(
                topic=topic, group=name, spec=SubscriptionSpec(), queues=[], members=[]
            )

        monkeypatch.setattr(client.admin, "group", group)
        with pytest.raises(ternmq.GroupSettingsMismatch, match=r"too old for RetryPolicy"):
            await client.admin.change_group("t", "g", retry=EXPIRING)
        await client.admin.change_group("t", "g", retry=ternmq.RetryPolicy(attempts=3))
