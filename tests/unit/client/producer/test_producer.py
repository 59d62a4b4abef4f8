"""Sending, against a broker that refuses, is silent, or talks nonsense."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest
from msgspec.structs import replace as replaced

import ternmq
from ternmq.client.connection.link import Waiting
from ternmq.client.content.broker_time import moved_clocks
from ternmq.client.producer.lanes import TopicFacts
from ternmq.client.producer.producer import ALONE
from ternmq.client.producer.singles import Singles
from ternmq.model.errors import (
    Busy,
    EncodeError,
    InvalidBatch,
    ProtocolError,
    ResendTooOld,
    StrictNeedsReplica,
    TernMQError,
)
from ternmq.wire.bodies import unpack_send
from ternmq.wire.commands import Command
from ternmq.wire.session import Request
from tests.asynchronous import until
from tests.unit.client.fake import FakeBroker


async def test_one_caller_s_send_leaves_in_the_next_turn() -> None:
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        await client.send("t", b"first")  # the topic is known now
        link = client._session.link
        assert link is not None
        written: list[object] = []
        assert link._transport is not None
        write = link._transport.write
        link._transport.write = lambda data: (written.append(data), write(data))[1]  # type: ignore[method-assign,func-returns-value]
        pending = asyncio.ensure_future(client.send("t", b"second"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(written) == 1
        await pending


async def test_frames_that_are_gathered_leave_with_the_flush_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        link = client._session.link
        assert link is not None
        soon: list[object] = []
        loop = asyncio.get_running_loop()
        waiting = [Waiting(loop) for _ in range(2)]
        with monkeypatch.context() as patch:
            patch.setattr(loop, "call_soon", lambda call, *_, **__: soon.append(call))
            link.gather()
            link.ask(Command.PING, b"", waiting[0])
            link.flush()
            assert not soon
            link.ask(Command.PING, b"", waiting[1])  # on its own again
            assert soon == [link.flush]
        link.flush()
        assert await asyncio.gather(*[one.future for one in waiting]) == [b"", b""]


async def test_messages_sent_one_at_a_time_leave_at_once() -> None:
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        for number in range(ALONE + 1):  # the first one makes the producer ask for the topic
            assert client._producer.core.batch_count == number
            pending = asyncio.ensure_future(client.send("t", b"x"))
            await asyncio.sleep(0)
            assert client._producer.core.batch_count == number + (number >= ALONE)
            await pending


async def test_messages_that_come_together_leave_together_again() -> None:
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        for _ in range(ALONE):
            await client.send("t", b"x")
        for _ in range(2):
            await asyncio.gather(*[client.send("t", b"x") for _ in range(4)])
        assert [one.count for one in fake.sends][ALONE:] == [1, 3, 4]
        for number in range(2 * ALONE):
            client.send_oneway("t", b"%d" % number)
        await until(lambda: sum(one.count for one in fake.sends) == ALONE + 8 + 2 * ALONE)
        assert [one.count for one in fake.sends][ALONE + 3 :] == [2 * ALONE]


async def test_a_message_that_leaves_at_once_and_cannot_be_encoded_fails_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_batch(load: Singles, producer_id: int) -> bytes:
        raise ValueError("no")

    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        for _ in range(ALONE):
            await client.send("t", b"x")
        with monkeypatch.context() as patch:
            patch.setattr(Singles, "encode", no_batch)
            with pytest.raises(EncodeError):
                await client.send("t", b"x")
        await client.flush()  # raises what nobody heard of
        assert not caplog.records  # what is raised is not logged as well
        assert (await client.send("t", b"y")).sequence == ALONE + 1


async def test_flush_waits_for_failures_that_are_still_to_be_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_batch(load: Singles, producer_id: int) -> bytes:
        raise ValueError("no")

    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        for _ in range(ALONE):
            await client.send("t", b"x")
        monkeypatch.setattr(Singles, "encode", no_batch)
        client.send_soon("t", b"x")  # leaves at once: its outcome is reported in the next turn
        assert client._producer.core.outcomes
        with pytest.raises(ternmq.UnsentMessages):
            await client.flush()


async def test_a_log_handler_that_raises_takes_no_outcome_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_batch(load: Singles, producer_id: int) -> bytes:
        raise ValueError("no")

    class Raises(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("the disk of the log is full")

    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    handler, log = Raises(logging.WARNING), logging.getLogger("ternmq")
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        for topic in "abc":
            await client.send(topic, b"x")
        monkeypatch.setattr(Singles, "encode", no_batch)
        log.addHandler(handler)
        try:
            for topic in "abc":
                client.send_soon(topic, b"x")
            with pytest.raises(ternmq.UnsentMessages) as caught:
                await client.flush()
        finally:
            log.removeHandler(handler)
        assert [one.topic for one in caught.value.failures] == ["a", "b", "c"]
        assert len(told) == 3  # each reported, by the loop


@pytest.mark.parametrize("middleware", [False, True])
async def test_times_of_a_message_that_waits_for_room_count_from_its_send(
    middleware: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeBroker() as fake:
        now_us = [5_000_000]
        welcome = fake._welcome
        monkeypatch.setattr(
            fake, "_welcome", lambda hello: replaced(welcome(hello), now_us=(1 << 40) + now_us[0])
        )
        monkeypatch.setitem(moved_clocks, int(fake.url.rsplit(":", 1)[1]), lambda: now_us[0])
        options = replace(ternmq.connect(fake.url).options, buffer_bytes=500, batch_bytes=500)
        async with ternmq.connect(options=options) as client:
            if middleware:

                @client.send_middleware
                def around(outbound: ternmq.Outbound) -> Iterator[None]:
                    yield

            await client.send("t", b"first")
            fake.silent = True
            fills = asyncio.ensure_future(client.send("t", bytes(500)))
            await until(lambda: client._producer.room.full)
            waits = asyncio.ensure_future(
                client.send("t", b"late", deliver_after=2, expires_after=10)
            )
            begin_us = client._session.broker_time.at(now_us[0])
            await asyncio.sleep(0)
            now_us[0] += 3_000_000
            fake.silent = False
            fake.cut()
            await asyncio.gather(fills, waits)
            (row,) = fake.sends[-1].rows()
            assert (row.due_us, row.expiry_us) == (begin_us + 2_000_000, begin_us + 12_000_000)


async def test_many_messages_that_wait_for_room_go_to_the_queues_that_there_are_then() -> None:
    async with FakeBroker(queues=2) as fake:
        options = replace(ternmq.connect(fake.url).options, buffer_bytes=2000, batch_bytes=500)
        async with ternmq.connect(options=options) as client:
            await client.send("t", b"first")
            fake.silent = True
            bodies = [b"%400d" % n for n in range(20)]
            messages = [ternmq.Message(body, key=body.decode()) for body in bodies]
            sending = asyncio.ensure_future(client.send_many("t", messages))
            core = client._producer.core
            await until(lambda: client._producer.room.full)
            topic = core.placing.topics["t"]
            for queues in (3, 4):  # the topic changes twice while parts wait
                core.placing.outdated("t")
                client._producer.learned(topic, TopicFacts(False, queues))
            fake.silent = False
            fake.cut()  # what was not answered is sent again
            receipts = await asyncio.wait_for(sending, 20)
        assert len(receipts) == 20
        assert sorted(set(fake.stored)) == sorted([b"first", *bodies])


async def test_many_messages_that_wait_are_sent_when_the_queues_change_and_change_back() -> None:
    """Those without room were put in a lane that their topic no longer had, and stayed there."""
    async with FakeBroker(queues=2) as fake:
        options = replace(ternmq.connect(fake.url).options, buffer_bytes=2000, batch_bytes=500)
        async with ternmq.connect(options=options) as client:
            await client.send("t", b"first")
            fake.silent = True
            messages = [ternmq.Message(b"%400d" % n, key=str(n)) for n in range(20)]
            core = client._producer.core
            topic = core.placing.topics["t"]
            three, two = TopicFacts(False, 3), TopicFacts(False, 2)
            client._producer.learned(topic, three)
            sending = asyncio.ensure_future(client.send_many("t", messages))
            await until(lambda: client._producer.room.full)
            client._producer.learned(topic, two)
            client._producer.learned(topic, three)
            core.placing.outdated("t")
            fake.silent = False
            fake.cut()
            receipts = await asyncio.wait_for(sending, 5)
        assert len(receipts) == 20


async def test_bodies_that_wait_for_a_queue_that_is_not_known_yet_keep_their_queue() -> None:
    async with FakeBroker(queues=4) as fake:
        options = replace(ternmq.connect(fake.url).options, buffer_bytes=2000, batch_bytes=500)
        async with ternmq.connect(options=options) as client:
            await client.send("t", b"first")
            fake.silent = True
            bodies = [b"%400d" % n for n in range(20)]
            sending = asyncio.ensure_future(
                client.send_many("t", bodies, queue=3, return_errors=True)
            )
            await until(lambda: client._producer.room.full)
            queues: set[int | None] = set()

            def send(request: Request) -> bytes | TernMQError | None:
                queues.add(unpack_send(request.body).queue)
                return fake._send(request)

            fake.on[Command.SEND] = send
            core = client._producer.core
            client._producer.learned(core.placing.topics["t"], TopicFacts(False, 2))
            core.placing.outdated("t")
            fake.silent = False
            fake.cut()
            await asyncio.wait_for(sending, 5)
        assert len(fake.stored) > 5
        assert queues == {3}


async def test_sequences_are_dense_and_batches_are_of_one_turn() -> None:
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        await asyncio.gather(*[client.send("t", b"%d" % n) for n in range(3)])
        await client.send_many("t", [b"x"] * 5)
        await client.send("t", b"last", key="k")
        assert [(one.first_sequence, one.count) for one in fake.sends] == [(1, 3), (4, 5), (9, 1)]
        assert {one.producer_id for one in fake.sends} == {client._producer.id}


async def test_what_is_refused_for_now_is_sent_again_as_it_was() -> None:
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        fake.refuse = [Busy("full"), Busy("full")]
        receipt = await client.send("t", b"x")
        assert receipt.offset == 0
        assert len(fake.raw) == 3
        assert len(set(fake.raw)) == 1


async def test_what_stays_refused_is_told_as_that() -> None:
    async with FakeBroker() as fake:
        client = await ternmq.connect(fake.url, timeout=0.3)
        fake.refuse = [Busy("full") for _ in range(100)]
        with pytest.raises(Busy):
            await client.send("t", b"x")
        fake.refuse = []
        await client.close()


async def test_a_definite_refusal_is_raised_at_once_to_each() -> None:
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        fake.refuse = [InvalidBatch("no")]
        told = await asyncio.gather(
            *[client.send("t", b"x") for _ in range(3)], return_exceptions=True
        )
        assert [type(one) for one in told] == [InvalidBatch] * 3
        assert len({id(one) for one in told}) == 3
        assert (await client.send("t", b"y")).sequence == 4


async def test_a_batch_of_an_ordered_topic_is_not_overtaken() -> None:
    async with FakeBroker(ordered=True) as fake, ternmq.connect(fake.url) as client:
        fake.refuse = [Busy("full")]
        first = asyncio.ensure_future(client.send("t", b"1", ordering_key="k"))
        await until(lambda: len(fake.sends) == 1)
        second = asyncio.ensure_future(client.send("t", b"2", ordering_key="k"))
        await asyncio.gather(first, second)
        assert fake.stored == [b"1", b"2"]
        assert all(one.keyed for one in fake.sends)


async def test_unanswered_sends_are_sent_again_in_order_with_the_same_bytes() -> None:
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        await client.send("t", b"0")
        fake.silent = True
        pending = []
        for number in range(3):
            pending.append(asyncio.ensure_future(client.send("t", b"%d" % number)))
            await until(lambda number=number: len(fake.sends) == 2 + number)  # type: ignore[misc]
        fake.silent = False
        fake.cut()
        await asyncio.gather(*pending)
        assert fake.raw[4:] == fake.raw[1:4]


async def test_refused_after_a_lost_answer_is_not_told_as_refused() -> None:
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        await client.send("t", b"0")
        for error, told in ((InvalidBatch("no"), ternmq.SendTimeout), (ResendTooOld("x"),) * 2):
            fake.silent = True
            count = len(fake.sends)
            pending = asyncio.ensure_future(client.send("t", b"1"))
            await until(lambda count=count: len(fake.sends) > count)  # type: ignore[misc]
            fake.silent = False
            fake.refuse = [error]
            fake.cut()
            with pytest.raises(told if isinstance(told, type) else type(told)):
                await pending


async def test_nonsense_ends_the_connection_and_sends_go_on() -> None:
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        await client.send("t", b"0")
        for nonsense in (b"GET / HTTP/1.1\r\n\r\n", bytes(16), b"\xff" * 100):
            fake.connections[-1].write(nonsense)
            link = client._session.link
            await until(lambda link=link: client._session.link is not link)  # type: ignore[misc]
            await client.send("t", b"1")
        fake.on[Command.SEND] = lambda request: b"short"
        pending = asyncio.ensure_future(client.send("t", b"2"))
        await until(lambda: len(fake.connections) > 5)
        del fake.on[Command.SEND]
        await pending


async def test_a_broker_that_is_none() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n" * 4)
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises((ternmq.CannotConnect, ProtocolError)):
            await ternmq.connect(f"ternmq://127.0.0.1:{port}")


async def test_buffers_are_bounded_and_senders_wait() -> None:
    async with FakeBroker() as fake:
        options = replace(ternmq.connect(fake.url).options, buffer_bytes=10_000, window_bytes=2000)
        async with ternmq.connect(options=options) as client:
            await client.send("t", b"x")
            fake.silent = True
            tasks = [asyncio.ensure_future(client.send("t", bytes(900))) for _ in range(100)]
            await until(lambda: len(fake.sends) > 1)
            assert client._producer.room.taken_bytes < 12_000
            fake.silent = False
            fake.cut()
            await asyncio.gather(*tasks)
            assert client._producer.room.taken_bytes == 0
            await client.send_many("t", [bytes(900)] * 100)
            assert len(fake.stored) == 201


async def test_a_message_that_is_given_up_before_it_left_was_not_sent() -> None:
    async with FakeBroker() as fake:
        url = fake.url
        client = await ternmq.connect(url, timeout=0.2)
        await client.send("t", b"x")
    with pytest.raises(ternmq.CannotConnect):
        await client.send("t", b"y")
    with pytest.raises(ternmq.PartialSendError) as raised:
        await client.send_many("t", [b"y"])
    assert isinstance(raised.value.failures[0].error, ternmq.CannotConnect)
    await client.close()


async def test_a_short_timeout_tells_the_last_refusal() -> None:
    """Every try was refused definitely: that is no SendTimeout, whose outcome is not known."""
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        await client.send("t", b"0")
        fake.refuse = [Busy("alone") for _ in range(1000)]
        with pytest.raises(ternmq.Busy):
            await client.send("t", b"x", timeout=0.3)
        count = len(fake.sends)
        fake.refuse = []
        # It is really given up: the next one goes, the refused one does not come behind it.
        assert (await client.send("t", b"y", timeout=5)).offset == 1
        assert [one.bodies() for one in fake.sends[count:]] == [[b"y"]]
        assert fake.stored == [b"0", b"y"]


async def test_a_strict_topic_without_a_replica_refuses_at_once() -> None:
    """No later try can succeed, so none is made."""
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        await client.send("t", b"0")
        fake.refuse = [StrictNeedsReplica("alone") for _ in range(1000)]
        with pytest.raises(ternmq.StrictNeedsReplica):
            await client.send("t", b"x")
        assert len(fake.sends) == 2
        assert len(fake.refuse) == 999


async def test_a_short_timeout_without_an_answer_is_not_known() -> None:
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        await client.send("t", b"0")
        fake.silent = True
        long = asyncio.ensure_future(client.send("t", b"long"))
        with pytest.raises(ternmq.SendTimeout, match=r"within 0.2 s.*not known"):
            await client.send("t", b"short", timeout=0.2)
        assert not long.done()
        fake.silent = False
        fake.cut()
        await long


@pytest.mark.parametrize("middleware", [False, True])
async def test_a_timeout_above_the_clients_is_kept(middleware: bool) -> None:
    async with FakeBroker() as fake, ternmq.connect(fake.url, timeout=0.2) as client:
        if middleware:

            @client.send_middleware
            def around(outbound: ternmq.Outbound) -> Iterator[None]:
                yield

        await client.send("t", b"0")
        fake.silent = True
        long = asyncio.ensure_future(client.send("t", b"long", timeout=20))
        longest = asyncio.ensure_future(client.send("t", b"longest", timeout=float("inf")))
        with pytest.raises(ternmq.SendTimeout, match=r"within 0.2 s"):
            await client.send("t", b"short")
        assert not long.done()
        fake.silent = False
        fake.cut()
        assert [(await one).offset for one in (long, longest)] == [1, 2]


async def test_messages_of_one_turn_and_one_timeout_travel_together() -> None:
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        await client.send("t", b"0")
        await asyncio.gather(
            *[client.send("t", b"%d" % n, timeout=(None, 5.0)[n % 2]) for n in range(10)]
        )
        assert sorted(fake.stored[1:]) == [b"%d" % n for n in range(10)]
        await asyncio.gather(*[client.send("t", b"x", timeout=5.0) for _ in range(10)])
        assert fake.sends[-1].count == 10


async def test_parts_that_wait_for_others_have_their_whole_time() -> None:
    """A slow broker, an ordered topic: each of many parts takes a third of the timeout."""
    async with FakeBroker(ordered=True) as fake:
        options = replace(ternmq.connect(fake.url).options, timeout=0.9, batch_rows=1)
        async with ternmq.connect(options=options) as client:
            store = fake._send

            def slowly(request: Request) -> bytes | TernMQError | None:
                asyncio.get_running_loop().call_later(0.3, fake.tell, request, store(request))
                return None

            fake.on[Command.SEND] = slowly
            items = [ternmq.Message(b"%d" % n, ordering_key="k") for n in range(6)]
            receipts = await client.send_many("t", items)
            assert [one.offset for one in receipts] == [0, 1, 2, 3, 4, 5]


async def test_parts_behind_one_that_is_not_answered_were_not_sent() -> None:
    async with FakeBroker(ordered=True) as fake:
        options = replace(ternmq.connect(fake.url).options, timeout=0.3, batch_rows=1)
        client = await ternmq.connect(options=options)
        await client.send("t", b"x", ordering_key="k")
        fake.silent = True
        items = [ternmq.Message(b"%d" % n, ordering_key="k") for n in range(3)]
        told = await client.send_many("t", items, return_errors=True)
        unsent = ternmq.BufferFull
        assert [type(one) for one in told] == [ternmq.SendTimeout, unsent, unsent]
        assert "whether it was stored" in str(told[0])
        assert "this one was not sent" in str(told[1])
        await client.close(0)


async def test_a_topic_is_asked_for_again_when_that_is_refused_for_now() -> None:
    refused = [Busy("many questions"), Busy("many questions")]
    async with FakeBroker() as fake, ternmq.connect(fake.url) as client:
        answered = fake._handle

        def told(request: Request) -> bytes | TernMQError | None:
            if refused:
                return refused.pop()
            del fake.on[Command.TOPIC_LIST]
            return answered(request)

        fake.on[Command.TOPIC_LIST] = told
        assert (await client.send("t", b"x")).offset == 0
        assert not refused


async def test_a_topic_that_stays_refused_is_told_as_that() -> None:
    async with FakeBroker() as fake:
        client = await ternmq.connect(fake.url, timeout=0.3)
        fake.on[Command.TOPIC_LIST] = lambda request: Busy("many questions")
        with pytest.raises(Busy):
            await client.send("t", b"x")
        assert not fake.sends
        await client.close()
