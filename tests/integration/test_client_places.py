"""Offsets of topics with several queues: which message is meant is said, never guessed."""

from __future__ import annotations

import pytest

import ternmq
from ternmq.testing import InProcessBroker
from tests.integration.client_shapes import API


async def two_dead(api, url):
    """Return a client, and two dead letters with the same offset: A in queue 0, B in queue 1."""
    client = await api.connect(url)
    await client.admin.create_topic("orders", queues=2)
    await client.admin.create_group("orders", "g")
    await client.send("orders", "A", queue=0)
    await client.send("orders", "B", queue=1)
    for _ in range(2):
        for delivery in await client.pull("orders", group="g", wait=5):
            await delivery.reject("no")
    dead = await listed(client)
    assert [(one.queue, one.offset, one.message.value) for one in dead] == [
        (0, 0, "A"),
        (1, 0, "B"),
    ]
    return client, *dead


async def listed(client):
    return [one async for one in client.deadletters.browse("orders", "g")]


async def test_an_offset_alone_is_refused(api: API, real: InProcessBroker) -> None:
    client, *_ = await two_dead(api, real.url)
    said = r"topic 'orders' has 2 queues.*queue="
    for refused in (
        lambda: client.deadletters.delete("orders", "g", [0]),
        lambda: client.deadletters.retry("orders", "g", [0]),
        lambda: client.deadletters.redrive("orders", "g", [0]),
        lambda: client.deadletters.redrive("orders", "g", [0], dry_run=True),
        lambda: client.deadletters.get("orders", "g", 0),
        lambda: client.replay("orders", "g", offsets=[0]),
        lambda: client.replay("orders", "g", offsets=range(1), dry_run=True),
        lambda: client.get("orders", offset=0),
    ):
        with pytest.raises(ternmq.InvalidRequest, match=said):
            await refused()
    assert len(await listed(client)) == 2
    await client.close()


async def test_a_queue_says_which(api: API, real: InProcessBroker) -> None:
    client, *_ = await two_dead(api, real.url)
    assert (await client.get("orders", queue=1, offset=0)).value == "B"
    assert (await client.deadletters.get("orders", "g", 0, queue=1)).message.value == "B"
    (told,) = await client.deadletters.redrive("orders", "g", [0], queue=1, dry_run=True)
    assert (told.queue, told.offset, told.done) == (1, 0, True)
    assert await client.deadletters.delete("orders", "g", [0, 7], queue=1) == [7]
    assert [one.message.value for one in await listed(client)] == ["A"]
    assert (await client.replay("orders", "g", offsets=[0], queue=0, dry_run=True)).again == 1
    await client.close()


async def test_messages_that_were_listed_know_their_queue(api: API, real: InProcessBroker) -> None:
    client, first, second = await two_dead(api, real.url)
    assert await client.deadletters.delete("orders", "g", [second]) == []
    assert [one.message.value for one in await listed(client)] == ["A"]
    told = await client.deadletters.redrive("orders", "g", [second, first])
    assert [(one.queue, one.offset, one.done) for one in told] == [(0, 0, True), (1, 0, False)]
    (again,) = await client.pull("orders", group="g", wait=5)
    assert again.value == "A"
    await again.retry(3600, reason="later")
    (waiting,) = [one async for one in client.deadletters.waiting("orders", "g")]
    assert await client.deadletters.retry("orders", "g", [waiting, second]) == [second]
    (again,) = await client.pull("orders", group="g", wait=5)
    assert (again.value, again.attempt) == ("A", 2)
    assert await client.deadletters.retry("orders", "g", []) == []
    await again.ack()
    await client.close()


async def test_messages_of_another_place_are_refused(api: API, real: InProcessBroker) -> None:
    client, first, second = await two_dead(api, real.url)
    with pytest.raises(ternmq.InvalidRequest, match="queue 1, not 0"):
        await client.deadletters.delete("orders", "g", [first, second], queue=0)
    await client.admin.create_topic("others", queues=2)
    await client.admin.create_group("others", "g")
    with pytest.raises(ternmq.InvalidRequest, match="of topic 'orders', not 'others'"):
        await client.deadletters.delete("others", "g", [first])
    for wrong in ("0", 0, [None], ["0"]):
        with pytest.raises(ternmq.InvalidRequest, match="whole number"):
            await client.deadletters.delete("orders", "g", wrong)
    assert len(await listed(client)) == 2
    await client.close()
