"""Which queue a message goes to: by key, by number, by a function of the application."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

import ternmq
from ternmq.record.batch.hashes import key_hash
from ternmq.testing import InProcessBroker
from tests.asynchronous import until
from tests.integration.client_shapes import API


def by_length(message: ternmq.Message, queues: Sequence[int]) -> int:
    assert isinstance(message.body, str)
    return queues[len(message.body) % len(queues)]


def broken(message: ternmq.Message, queues: Sequence[int]) -> int:
    raise KeyError(message.key)


async def test_a_key_keeps_its_queue_and_others_go_everywhere(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t", queues=4)
        seen: dict[str, set[int]] = {}
        for _ in range(3):
            for number in range(16):
                receipt = await client.send("t", b"x", key=f"k{number}")
                seen.setdefault(f"k{number}", set()).add(receipt.queue)
        items = [ternmq.Message(b"y", key=f"k{number}") for number in range(16)]
        for number, receipt in enumerate(await client.send_many("t", items)):
            seen[f"k{number}"].add(receipt.queue)
        assert all(len(queues) == 1 for queues in seen.values())
        assert set().union(*seen.values()) == {0, 1, 2, 3}
        spread = Counter([(await client.send("t", b"z")).queue for _ in range(40)])
        assert spread == {0: 10, 1: 10, 2: 10, 3: 10}


async def test_a_number_is_obeyed_however_it_is_sent(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t", queues=3)
        # The first before anything is known of the topic.
        assert (await client.send("t", b"0", queue=2)).queue == 2
        assert (await client.send("t", b"1", key="k", queue=0)).queue == 0
        many = await client.send_many("t", [b"a", b"b"], queue=1)
        assert [one.queue for one in many] == [1, 1]
        mixed = [ternmq.Message(b"c", queue=0), ternmq.Message(b"d"), "e"]
        assert [one.queue for one in await client.send_many("t", mixed, queue=2)] == [0, 2, 2]
        soon = client.send_soon("t", b"f", queue=1)
        await client.flush()
        assert soon.result().queue == 1
        await client.close()
    async with api.connect(real.url) as client:
        client.send_oneway("t", b"g", queue=2)
        await client.close()
    async with ternmq.connect(real.url) as client:
        found = [one.body async for one in client.read("t", queue=2)]
        assert found == [b"0", b"d", b"e", b"g"]


async def test_a_selector_is_obeyed_however_it_is_sent(api: API, real: InProcessBroker) -> None:
    shown: list[ternmq.Message] = []

    def select(message: ternmq.Message, queues: Sequence[int]) -> int:
        shown.append(message)
        return by_length(message, queues)

    async with api.connect(real.url) as client:
        await client.admin.create_topic("t", queues=3)
        headers = {"h": "v"}
        sent = await client.send("t", "four", key="k", tag="x", headers=headers, queue=select)
        assert sent.queue == 1
        assert shown == [
            ternmq.Message("four", key="k", tag="x", headers=headers, content_type="text/plain")
        ]
        many = await client.send_many("t", ["", "a", "bb", "ccc"], queue=by_length)
        assert [one.queue for one in many] == [0, 1, 2, 0]
        some = [ternmq.Message("dddd", queue=by_length), ternmq.Message("e", queue=2)]
        assert [one.queue for one in await client.send_many("t", some)] == [1, 2]
        soon = client.send_soon("t", "ff", queue=by_length)
        await client.flush()
        assert soon.result().queue == 2


async def test_a_queue_that_is_not_there(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t", queues=2)
        for queue in (2, -1, lambda message, queues: 7):
            # Known or not: the first is sent before the broker was asked.
            with pytest.raises(ternmq.UnknownQueue, match="queues 0 to 1, not"):
                await client.send("t", b"x", queue=queue)
        with pytest.raises(ternmq.UnknownQueue, match="not 2"):
            await client.send_many("t", [b"x"], queue=2)
        with pytest.raises(ternmq.UnknownQueue, match="not 2"):
            await client.send_many("t", ["text"], queue=2)
        for wrong in ("0", 1.0, True):
            with pytest.raises(ternmq.InvalidRequest, match="queue is a number, or a function"):
                await client.send("t", b"x", queue=wrong)
        with pytest.raises(ternmq.InvalidRequest, match="returned None"):
            await client.send("t", b"x", queue=lambda message, queues: None)
        with pytest.raises(ternmq.InvalidRequest, match="function queue= failed: KeyError"):
            await client.send("t", b"x", queue=broken)
        info = await client.admin.topic("t")
        assert [one.next for one in info.queues] == [0, 0]
        with pytest.raises(ternmq.PartialSendError, match=r"message 1: .* not 9") as told:
            await client.send_many(
                "t", [ternmq.Message(b"x", queue=1), ternmq.Message("", queue=9)]
            )
        assert [one and one.queue for one in told.value.receipts] == [1, None]
        assert isinstance(told.value.failures[0].error, ternmq.UnknownQueue)


async def test_ordered_topics_go_by_the_ordering_key(api: API, real: InProcessBroker) -> None:
    home = key_hash(b"k") % 3
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t", queues=3, ordered=True)
        assert (await client.send("t", b"x", ordering_key="k", queue=home)).queue == home
        other = (home + 1) % 3
        with pytest.raises(ternmq.InvalidRequest, match=f"belongs to queue {home}, not {other}"):
            await client.send("t", b"x", ordering_key="k", queue=other)
        with pytest.raises(ternmq.PartialSendError, match=r"message 0: .*leave out queue="):
            await client.send_many("t", [ternmq.Message(b"x", ordering_key="k", queue=other)])
        with pytest.raises(ternmq.UnknownQueue):
            await client.send("t", b"x", ordering_key="k", queue=3)
        with pytest.raises(ternmq.OrderingKeyRequired):
            await client.send("t", b"x", queue=home)


async def test_a_queue_that_was_just_made(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client, ternmq.connect(real.url) as other:
        await other.admin.create_topic("t", queues=2)
        assert (await client.send("t", b"x", queue=1)).queue == 1
        topic = client._producer._topics["t"]
        await other.admin.change_topic("t", queues=4)
        await until(lambda: topic.facts is None, "it is told")
        assert (await client.send("t", b"x", queue=3)).queue == 3
        await other.admin.change_topic("t", retention=timedelta(hours=1))
        await until(lambda: topic.facts is None, "it is told")
        with pytest.raises(ternmq.UnknownQueue):
            await client.send("t", b"x", queue=4)
