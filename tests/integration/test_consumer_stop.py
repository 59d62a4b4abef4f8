"""``Consumer.stop``: the iteration ends after the delivery in hand, and the rest is given back."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from types import FrameType

import pytest

import ternmq
import ternmq.sync
from ternmq.client.consumer import consumer as engine
from ternmq.testing import InProcessBroker
from tests.asynchronous import until
from tests.integration.proxy import Proxy


def left(broker: InProcessBroker, count: int) -> list[tuple[bytes, int]]:
    """Pull what another consumer gave back: bodies, and which attempt each is."""
    with ternmq.sync.connect(broker.url) as client:
        found: list[tuple[bytes, int]] = []
        while len(found) < count:
            batch = client.pull("o", group="g", wait=30)
            assert batch
            found += [(one.body, one.attempt) for one in batch]
            batch.ack()
        assert not client.pull("o", group="g", wait=0)
        return found


@pytest.mark.parametrize("ordered", [False, True])
def test_another_thread_ends_the_loop(real: InProcessBroker, ordered: bool) -> None:
    with ternmq.sync.connect(real.url) as client:
        client.admin.create_topic("o", ordered=ordered)
        keys = ["a", "b"] if ordered else [""]
        for number in range(6):
            client.send("o", b"%d" % number, ordering_key=keys[number % len(keys)])
        in_hand, go_on, seen = threading.Event(), threading.Event(), []

        def work() -> None:
            with client.consume("o", group="g", max_in_flight=20) as deliveries:
                consumers.append(deliveries)
                for delivery in deliveries:
                    with delivery.process():
                        seen.append(delivery.body)
                        in_hand.set()
                        assert go_on.wait(30)

        consumers: list[ternmq.sync.Consumer] = []
        thread = threading.Thread(target=work)
        thread.start()
        assert in_hand.wait(30)
        consumers[0].stop()
        consumers[0].stop()  # may be repeated
        go_on.set()
        thread.join(30)
        assert not thread.is_alive()
    assert seen == [b"0"]
    # The delivery in hand was acked; the others have used up no attempt.
    assert sorted(left(real, 5)) == [(b"%d" % number, 1) for number in range(1, 6)]


def test_the_others_get_what_was_fetched_ahead_at_once(real: InProcessBroker) -> None:
    with ternmq.sync.connect(real.url) as client, ternmq.sync.connect(real.url) as other:
        client.send_many("o", [b"0", b"1", b"2"])
        with client.consume("o", group="g", max_in_flight=20) as deliveries:
            for delivery in deliveries:
                deliveries.stop()
                found: list[bytes] = []
                while len(found) < 2:  # while the first one is still in hand
                    batch = other.pull("o", group="g", wait=30)
                    assert batch
                    found += batch.bodies
                    batch.ack()
                assert sorted(found) == [b"1", b"2"]
                delivery.ack()
            assert list(deliveries) == []


def test_a_thread_that_waits_for_a_message_is_woken(real: InProcessBroker) -> None:
    with ternmq.sync.connect(real.url) as client:
        client.admin.create_topic("o")
        consumer = client.consume("o", group="g")
        with consumer as deliveries:
            thread = threading.Thread(target=lambda: list(deliveries))
            thread.start()
            thread.join(0.1)  # most probably it waits; if not, it ends as well
            deliveries.stop()
            thread.join(30)
            assert not thread.is_alive()
    consumer.stop()  # also after the client was closed


def test_a_signal_handler_ends_the_loop(real: InProcessBroker) -> None:
    with ternmq.sync.connect(real.url) as client:
        client.send("o", b"x")
        with client.consume("o", group="g") as deliveries:

            def end(number: int, frame: FrameType | None) -> None:
                deliveries.stop()

            before = signal.signal(signal.SIGUSR1, end)
            try:
                for delivery in deliveries:
                    delivery.ack()
                    # The next message never comes: the signal ends the wait for it.
                    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            finally:
                signal.signal(signal.SIGUSR1, before)


def test_before_it_is_entered(real: InProcessBroker) -> None:
    with ternmq.sync.connect(real.url) as client:
        client.send("o", b"x")
        consumer = client.consume("o", group="g")
        consumer.stop()
        with consumer as deliveries:
            assert list(deliveries) == []

    async def asynchronous() -> None:
        async with ternmq.connect(real.url) as client:
            consumer = client.consume("o", group="g")
            consumer.stop()
            async with asyncio.timeout(30), consumer as deliveries:
                assert [one async for one in deliveries] == []

    asyncio.run(asynchronous())
    assert left(real, 1) == [(b"x", 1)]


class _Late(Proxy):
    """A proxy that holds answers back while ``mute``, and passes them on afterwards."""

    held = 0
    asked = 0

    async def _pass(self, reader, writer, *, answers=False):
        while data := await reader.read(65536):
            if answers and self.mute:
                self.held += 1
                await until(lambda: not self.mute, "the answers may pass", 60)
            self.asked += not answers
            writer.write(data)
            await writer.drain()
        writer.transport.abort()


@pytest.mark.parametrize("mode", ["shared", "owned", "exclusive"])
async def test_a_message_on_its_way_to_a_consumer_that_ends_goes_to_the_next_at_once(
    real: InProcessBroker, mode: ternmq.Mode
) -> None:
    async with _Late(real.port) as proxy, ternmq.connect(real.url) as two:
        await two.admin.create_topic("o", queues=1)
        await two.admin.create_group("o", "g", mode=mode)
        async with ternmq.connect(proxy.url) as one:
            consumer = one.consume("o", group="g")
            await consumer.__aenter__()  # and its pull waits for a message
            proxy.mute = True
            await two.send("o", b"x")
            await until(lambda: proxy.held, "the message is on its way")
            asked = proxy.asked
            ending = asyncio.ensure_future(consumer.__aexit__(None, None, None))
            await until(lambda: proxy.asked > asked, "it withdraws its pull")
            assert not ending.done(), "it waits until it has given back what may still come"
            proxy.mute = False
            await ending
            batch = await two.pull("o", group="g", wait=0)
            assert batch
            assert [(one.body, one.attempt) for one in batch] == [(b"x", 1)]
            await batch.ack()


async def test_a_consumer_does_not_wait_for_ever_for_a_broker_that_does_not_answer(
    real: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.ConsumerEngine.close, "__kwdefaults__", {"timeout": 0.05})
    async with _Late(real.port) as proxy:
        one = ternmq.connect(proxy.url)
        await one.admin.create_topic("o")
        async with one.consume("o", group="g"):
            proxy.mute = True
        proxy.mute = False
        await one.close()


def test_a_consumer_shows_only_what_programs_use() -> None:
    for kind in (ternmq.Consumer, ternmq.sync.Consumer):
        assert [name for name in dir(kind) if not name.startswith("_")] == ["stop"]
