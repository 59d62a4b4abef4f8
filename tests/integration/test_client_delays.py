"""Messages that are due later: sent, looked up, cancelled, delivered, by both clients."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ternmq
from ternmq.testing import InProcessBroker
from ternmq.testing.clock import START_US
from tests.asynchronous import until
from tests.integration.client_shapes import API
from tests.integration.proxy import Proxy

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def now(broker: InProcessBroker) -> datetime:
    return START + timedelta(microseconds=broker.clock.now_us - START_US)


async def advance(broker: InProcessBroker, delta: timedelta) -> None:
    await asyncio.to_thread(broker.clock.advance, delta)


async def taken(client: Any, topic: str, group: str = "g") -> list[Any]:
    """Pull and settle all there is; return the deliveries."""
    found: list[Any] = []
    while deliveries := await client.pull(topic, group=group, wait=0):
        for delivery in deliveries:
            found.append(delivery)
            await delivery.ack()
    return found


async def bodies(client: Any, topic: str) -> list[bytes]:
    return [one.body for one in await taken(client, topic)]


# -- sending ---------------------------------------------------------------------------------------


@pytest.mark.row("K10", "L0a", "L0b")
async def test_a_message_comes_when_it_is_due_and_not_before(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        after = await client.send("t", b"after", deliver_after=1.3)
        at = await client.send("t", b"at", deliver_at=START + timedelta(seconds=17))
        far = await client.send("t", b"far", deliver_after=timedelta(minutes=61))
        now_ = await client.send("t", b"now")
        assert (now_.due_at, now_.offset) == (None, 0)
        for receipt, due in ((after, 1.3), (at, 17), (far, 3660)):
            assert receipt.due_at == START + timedelta(seconds=due)
            assert (receipt.offset, receipt.durable, receipt.duplicate) == (None, True, False)
        assert await bodies(client, "t") == [b"now"]
        for receipt, body in ((after, b"after"), (at, b"at"), (far, b"far")):
            await advance(timed, receipt.due_at - now(timed) - timedelta(microseconds=1))
            assert await taken(client, "t") == []
            await advance(timed, timedelta(microseconds=1))
            (delivery,) = await taken(client, "t")
            assert (delivery.body, delivery.due_at, delivery.id) == (
                body, receipt.due_at, receipt.id,
            )  # fmt: skip
            assert delivery.stored_at == receipt.due_at
        times = [one.due_at for one in await taken(client, "t", "other")]
        assert times == [None, after.due_at, at.due_at, far.due_at]


async def test_every_way_to_send_takes_due_times(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        soon = await client.send_soon("t", b"soon", deliver_after=1)
        assert soon.due_at == START + timedelta(seconds=1)
        soon = await client.send_soon("t", b"soon", deliver_at=START + timedelta(seconds=2))
        assert soon.due_at == START + timedelta(seconds=2)
        receipts = await client.send_many(
            "t",
            [
                b"bare",
                ternmq.Message(b"own", deliver_after=5),
                ternmq.Message(b"at", deliver_at=START + DAY, key="k"),
                ternmq.Message(b"now", deliver_after=0),
                ternmq.Message(b"past", deliver_at=START - DAY),
                b"again",
            ],
            deliver_after=3,
        )
        seconds = [one.due_at and (one.due_at - START) / timedelta(seconds=1) for one in receipts]
        # Its batch was stored with others that are due later, so the fifth is due at once.
        assert seconds == [3, 5, 86_400, None, -86_400, 3]
        assert receipts[0].due_at == receipts[5].due_at
        assert [one.offset for one in receipts] == [None, None, None, 0, None, None]
        assert len({one.id for one in receipts}) == 6
        await advance(timed, timedelta())
        assert await bodies(client, "t") == [b"now", b"past"]
        await advance(timed, timedelta(seconds=6))
        assert await bodies(client, "t") == [b"soon", b"soon", b"bare", b"again", b"own"]
        await advance(timed, DAY)
        assert await bodies(client, "t") == [b"at"]


async def test_rows_of_one_call_share_a_due_time_and_a_record(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        await client.send("t", b"")
        receipts = await client.send_many("t", [b"x"] * 100, deliver_after=timedelta(hours=3))
        own = await client.send_many("t", [ternmq.Message(b"y", deliver_after=9)] * 100)
        assert len({one.due_at for one in receipts}) == len({one.due_at for one in own}) == 1
        await advance(timed, timedelta(hours=4))
        assert await bodies(client, "t") == [b"", *[b"y"] * 100, *[b"x"] * 100]


@pytest.mark.row("L0l")
@pytest.mark.parametrize(
    "when",
    [
        {"deliver_after": 0}, {"deliver_after": -5.0}, {"deliver_after": timedelta(days=-400)},
        {"deliver_at": START - DAY}, {"deliver_at": datetime(1, 1, 2, tzinfo=UTC)},
        {"deliver_at": START},
    ],
)  # fmt: skip
async def test_what_is_past_comes_at_once(
    api: API, timed: InProcessBroker, when: dict[str, Any]
) -> None:
    async with api.connect(timed.url) as client:
        receipt = await client.send("t", b"x", **when)
        assert (receipt.offset, receipt.due_at) == (0, None)
        (receipt,) = await client.send_many("t", [b"y"], **when)
        assert (receipt.offset, receipt.due_at) == (1, None)
        assert await bodies(client, "t") == [b"x", b"y"]


FAR = 731 * DAY + timedelta(minutes=2)


@pytest.mark.row("L0c")
@pytest.mark.parametrize(
    ("when", "error"),
    [
        ({"deliver_after": 731 * 86_400 + 1}, ternmq.DueTooFar),
        ({"deliver_after": timedelta(days=732)}, ternmq.DueTooFar),
        ({"deliver_after": timedelta.max}, ternmq.DueTooFar),
        ({"deliver_after": 1e300}, ternmq.DueTooFar),
        ({"deliver_after": 10**400}, ternmq.InvalidRequest),
        ({"deliver_after": -(10**400)}, ternmq.InvalidRequest),
        ({"deliver_at": START + FAR}, ternmq.DueTooFar),
        ({"deliver_at": datetime(2262, 5, 1, tzinfo=UTC)}, ternmq.DueTooFar),
        ({"deliver_at": datetime.max.replace(tzinfo=UTC)}, ternmq.DueTooFar),
        ({"deliver_after": float("nan")}, ternmq.InvalidRequest),
        ({"deliver_after": float("inf")}, ternmq.InvalidRequest),
        ({"deliver_after": float("-inf")}, ternmq.InvalidRequest),
        ({"deliver_after": True}, ternmq.InvalidRequest),
        ({"deliver_after": "5s"}, ternmq.InvalidRequest),
        ({"deliver_at": datetime(2026, 5, 1)}, ternmq.InvalidRequest),  # noqa: DTZ001
        ({"deliver_at": 1_800_000_000}, ternmq.InvalidRequest),
        ({"deliver_at": "2026-05-01"}, ternmq.InvalidRequest),
        ({"deliver_after": 5, "deliver_at": START + DAY}, ternmq.InvalidRequest),
        ({"deliver_after": 0, "deliver_at": START + DAY}, ternmq.InvalidRequest),
    ],
)  # fmt: skip
async def test_times_that_cannot_be_are_refused_and_nothing_is_stored(
    api: API, timed: InProcessBroker, when: dict[str, Any], error: type[Exception]
) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        with pytest.raises(error) as raised:
            await client.send("t", b"x", **when)
        assert type(raised.value) is error
        assert "deliver" in str(raised.value) or "due" in str(raised.value)
        with pytest.raises(error):
            await client.send_soon("t", b"x", **when)
        with pytest.raises(error):
            await client.send_many("t", [b"x"], **when)
        told = await client.send_many(
            "t", [b"good", ternmq.Message(b"bad", **when), b"good"], return_errors=True
        )
        assert [type(one) for one in told] == [ternmq.Receipt, error, ternmq.Receipt]
        assert await client.admin.scheduled("t") == []
        assert await bodies(client, "t") == [b"good", b"good"]


@pytest.mark.row("L0c")
async def test_two_years_ahead_are_accepted(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        longest = await client.send("t", b"longest", deliver_after=timedelta(days=731))
        assert longest.due_at == START + 731 * DAY
        await client.send("t", b"729", deliver_at=START + 729 * DAY)
        await advance(timed, 730 * DAY)
        assert await bodies(client, "t") == [b"729"]
        await advance(timed, DAY)
        assert await bodies(client, "t") == [b"longest"]


@pytest.mark.row("L0m")
def test_levels_of_rocketmq() -> None:
    seconds = [ternmq.delay_level(level).total_seconds() for level in range(1, 19)]
    minutes = [60 * minute for minute in range(1, 11)]
    assert seconds == [1, 5, 10, 30, *minutes, 20 * 60, 30 * 60, 3600, 7200]
    for wrong in (0, 19, -1, 1.0, True, "3"):
        with pytest.raises(ternmq.InvalidRequest, match="delay level"):
            ternmq.delay_level(wrong)  # type: ignore[arg-type]


async def test_a_delay_counts_from_the_call_also_without_a_connection(
    timed: InProcessBroker,
) -> None:
    async with ternmq.connect(timed.url) as client:
        await client.send("t", b"")
        timed.stop()
        asked = now(timed)
        sent = client.send_soon("t", b"x", deliver_after=60)
        await advance(timed, timedelta(seconds=40))
        timed.start()
        assert (await sent).due_at == asked + timedelta(seconds=60)
    client = ternmq.connect(timed.url)
    sent = client.send_soon("t", b"never connected before", deliver_after=60)
    assert (await sent).due_at == now(timed) + timedelta(seconds=60)
    await client.close()


async def test_a_relative_delay_is_never_early_by_real_clocks(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        before = (await client.admin.status()).now
        receipt = await client.send("t", b"x", deliver_after=0.2)
        assert receipt.due_at >= before + timedelta(seconds=0.2)
        (delivery,) = await client.pull("t", group="g")
        after = (await client.admin.status()).now
        assert receipt.due_at <= delivery.stored_at <= after
        await delivery.ack()


async def test_a_batch_has_due_times_for_all_or_none(timed: InProcessBroker) -> None:
    """Alternating sends of one turn become two batches, not one for each message."""
    async with ternmq.connect(timed.url) as client:
        await client.send("t", b"")
        before = client.stats().batches
        sent = [
            client.send_soon("t", b"%d" % one, deliver_after=one % 2 * 5 or None)
            for one in range(100)
        ]
        receipts = await asyncio.gather(*sent)
        assert client.stats().batches == before + 2
        assert [bool(one.due_at) for one in receipts] == [False, True] * 50
        await advance(timed, timedelta(seconds=5))
        assert len(await bodies(client, "t")) == 101


async def test_a_topic_with_queues_takes_them_in_turn_or_as_asked(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t", queues=3)
        asked = await client.send("t", b"asked", queue=2, deliver_after=1)
        assert (asked.queue, asked.offset) == (2, None)
        with pytest.raises(ternmq.UnknownQueue):
            await client.send("t", b"", queue=3, deliver_after=1)
        for number in range(6):
            await client.send("t", b"%d" % number, deliver_after=2)
        await advance(timed, timedelta(seconds=3))
        found = await taken(client, "t")
        by_queue = [sorted(one.body for one in found if one.queue == queue) for queue in range(3)]
        assert [len(one) for one in by_queue] == [2, 2, 3]
        assert b"asked" in by_queue[2]


async def test_each_takes_its_place_in_its_key_when_it_is_due(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t", ordered=True, queues=4)
        keys = [f"key-{number}" for number in range(20)]
        for key in keys:
            await client.send("t", f"{key} 3".encode(), ordering_key=key, deliver_after=20)
            await client.send("t", f"{key} 1".encode(), ordering_key=key)
        await client.send_many(
            "t",
            [ternmq.Message(f"{key} 2".encode(), ordering_key=key) for key in keys],
            deliver_after=10,
        )
        with pytest.raises(ternmq.OrderingKeyRequired):
            await client.send("t", b"", deliver_after=5)
        await advance(timed, timedelta(seconds=30))
        for key in keys:
            await client.send("t", f"{key} 4".encode(), ordering_key=key)
        found = await taken(client, "t")
        for key in keys:
            own = [one.body.decode() for one in found if one.ordering_key == key]
            assert own == [f"{key} {number}" for number in (1, 2, 3, 4)]


async def test_a_message_can_create_its_topic(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        await client.send("plain", b"x", deliver_after=1)
        await client.send("keyed", b"x", ordering_key="k", deliver_after=1)
        assert not (await client.admin.topic("plain")).spec.ordered
        assert (await client.admin.topic("keyed")).spec.ordered
        await advance(timed, timedelta(seconds=2))
        assert await bodies(client, "plain") == await bodies(client, "keyed") == [b"x"]


async def test_a_topic_that_is_fast_says_so(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t", durability="fast")
        receipt = await client.send("t", b"x", deliver_after=1)
        assert (receipt.durable, receipt.due_at is None) == (False, False)


async def test_middlewares_may_set_a_due_time(timed: InProcessBroker) -> None:
    client = ternmq.connect(timed.url)

    @client.send_middleware
    def later(outbound: ternmq.Outbound) -> Any:
        outbound.message.deliver_after = 60
        yield

    async with client:
        assert (await client.send("t", b"x")).due_at == START + timedelta(seconds=60)
        (receipt,) = await client.send_many("t", [b"x"])
        assert receipt.due_at == START + timedelta(seconds=60)
        assert (await client.send_soon("t", b"x")).due_at is not None
        with pytest.raises(ternmq.InvalidRequest, match="nobody could cancel it"):
            client.send_oneway("t", b"x")


async def test_a_message_that_was_not_sent_keeps_its_due_time(timed: InProcessBroker) -> None:
    timed.stop()
    at = START + DAY
    client = ternmq.connect(timed.url, timeout=0.2)
    client.send_soon("t", b"after", deliver_after=60)
    client.send_soon("t", b"at", deliver_at=at)
    with pytest.raises(ternmq.UnsentMessages) as raised:
        await client.flush(10)
    unsent: list[Any] = [failure.message for failure in raised.value.failures]
    assert [(one.deliver_after, one.deliver_at) for one in unsent] == [
        (timedelta(seconds=60), None), (None, at),
    ]  # fmt: skip
    timed.start()
    receipts = await client.send_many("t", unsent)
    assert [one.due_at for one in receipts] == [now(timed) + timedelta(seconds=60), at]
    await client.close()


# -- repeats ---------------------------------------------------------------------------------------


async def test_a_lost_answer_schedules_it_once(timed: InProcessBroker) -> None:
    async with Proxy(timed.port) as proxy, ternmq.connect(proxy.url) as client:
        await client.send("t", b"")
        proxy.mute = True
        sent = client.send_soon("t", b"x", deliver_at=START + DAY)
        core = timed._server.core
        await until(lambda: core.broker.views.schedule.rows == 1, "the message scheduled")
        proxy.mute = False
        proxy.cut()
        receipt = await sent
        assert (receipt.duplicate, receipt.due_at, receipt.offset) == (True, START + DAY, None)
        assert core.broker.views.schedule.rows == 1
    async with ternmq.connect(timed.url) as client:
        await advance(timed, 2 * DAY)
        assert await bodies(client, "t") == [b"", b"x"]


async def test_an_id_is_scheduled_once(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        first = await client.send("t", b"x", id="order-7", deliver_after=60)
        again = await client.send("t", b"x", id="order-7", deliver_after=90)
        assert (again.duplicate, again.offset, again.due_at) == (True, None, None)
        assert (await client.get("t", again.id)).due_at == first.due_at
        with pytest.raises(ternmq.IdConflict):
            await client.send("t", b"another", id="order-7", deliver_after=60)
        await advance(timed, timedelta(seconds=100))
        late = await client.send("t", b"x", id="order-7")
        assert late.duplicate
        assert await bodies(client, "t") == [b"x"]


async def test_the_id_of_a_cancelled_message_is_a_conflict(
    api: API, timed: InProcessBroker
) -> None:
    """It is not stored, so its receipt must not say that it is."""
    async with api.connect(timed.url) as client:
        first = await client.send("t", b"x", id="order-7", deliver_after=60)
        await client.cancel(first)
        for when in ({"deliver_after": 90}, {}):
            with pytest.raises(ternmq.IdConflict, match="was cancelled"):
                await client.send("t", b"x", id="order-7", **when)
        await client.send("t", b"x", id="order-7-again", deliver_after=60)
        await advance(timed, timedelta(seconds=100))
        assert await bodies(client, "t") == [b"x"]


# -- looking up ------------------------------------------------------------------------------------


async def test_a_look_up_says_what_became_of_it(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        receipt = await client.send(
            "t", {"a": 1}, key="k", id="own", deliver_after=60, headers={"h": "1"}
        )
        other = await client.send("t", b"y", key="k", deliver_after=90)
        for id_ in (receipt.id, "own"):
            found = await client.get("t", id_)
            assert (found.state, found.due_at) == ("scheduled", receipt.due_at)
            assert (found.queue, found.offset, found.id) == (None, None, receipt.id)
            assert (found.value, found.key, found.headers) == ({"a": 1}, "k", {"h": "1"})
            assert found.stored_at == START
        assert [one.id for one in await client.find("t", key="k")] == [other.id, receipt.id]
        assert [one.id for one in await client.find("t", key="k", limit=1)] == [other.id]
        await client.cancel(other)
        found = await client.get("t", other.id)
        assert (found.state, found.due_at, found.offset) == ("cancelled", other.due_at, None)
        assert [one.id for one in await client.find("t", key="k")] == [receipt.id]
        await advance(timed, timedelta(seconds=100))
        for id_ in (receipt.id, "own"):
            found = await client.get("t", id_)
            assert (found.state, found.due_at) == ("stored", receipt.due_at)
            assert (found.queue, found.offset) == (0, 0)
            assert found.stored_at == receipt.due_at
        assert [(one.id, one.offset) for one in await client.find("t", key="k")] == [
            (receipt.id, 0)
        ]
        assert (await client.get("t", other.id)).state == "cancelled"


async def test_a_replay_by_id_does_not_find_what_is_not_in_its_queue(
    api: API, timed: InProcessBroker
) -> None:
    async with api.connect(timed.url) as client:
        stored = await client.send("t", b"x")
        later = await client.send("t", b"y", deliver_after=60)
        await taken(client, "t")
        replayed = await client.replay("t", "g", ids=[stored.id, later.id])
        assert (replayed.again, replayed.missing) == (1, (later.id,))


async def test_what_is_scheduled_is_listed(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        await client.admin.create_topic("t")
        await client.admin.create_topic("other")
        await client.send("other", b"", deliver_after=60)
        assert await client.admin.scheduled("t") == []
        assert await client.admin.scheduled_messages("t") == []
        receipts = await client.send_many(
            "t",
            [
                ternmq.Message(
                    b"%d" % one, key=f"k{one}", id=f"id{one}", deliver_after=timedelta(minutes=one)
                )
                for one in range(1, 601)
            ],
        )
        hours = await client.admin.scheduled("t")
        assert [(one.hour, one.messages) for one in hours] == [
            (START + timedelta(hours=one), 59 if not one else 1 if one == 10 else 60)
            for one in range(11)
        ]
        listed = await client.admin.scheduled_messages("t", limit=1000)
        assert [(one.id, one.due_at, one.key, one.application_id) for one in listed] == [
            (one.id, one.due_at, f"k{number}", f"id{number}")
            for number, one in enumerate(receipts, 1)
        ]
        assert {(one.stored_at, one.queue) for one in listed} == {(START, None)}
        assert len(await client.admin.scheduled_messages("t")) == 100
        some = await client.admin.scheduled_messages(
            "t", since=START + timedelta(minutes=300), until=START + timedelta(minutes=500)
        )
        assert [one.id for one in some] == [one.id for one in receipts[299:399]]
        for wrong in ({"limit": 0}, {"since": START, "until": START}, {"since": 5}):
            with pytest.raises(ternmq.InvalidRequest):
                await client.admin.scheduled_messages("t", **wrong)
        for ask in (client.admin.scheduled, client.admin.scheduled_messages):
            with pytest.raises(ternmq.UnknownTopic):
                await ask("nowhere")


# -- cancelling ------------------------------------------------------------------------------------


@pytest.mark.row("L0n")
async def test_a_cancelled_message_is_never_delivered(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        receipts = [
            await client.send("t", b"%d" % one, id=f"id{one}", deliver_after=60) for one in range(5)
        ]
        await client.cancel(receipts[0])
        await client.cancel("t", receipts[1].id)
        await client.cancel("t", "id2")
        await client.cancel(receipts[0])
        await client.cancel("t", "id0")
        timed.restart(clean=False)
        await client.cancel(receipts[0])
        await advance(timed, timedelta(seconds=100))
        assert await bodies(client, "t") == [b"3", b"4"]
        for what in ((receipts[3],), ("t", receipts[4].id), ("t", "id3")):
            with pytest.raises(ternmq.AlreadyDelivered):
                await client.cancel(*what)
        await client.cancel(receipts[0])
        immediate = await client.send("t", b"now")
        with pytest.raises(ternmq.AlreadyDelivered):
            await client.cancel(immediate)
        for unknown in ("0000000000000001:1", "never", "x" * 300):
            with pytest.raises(ternmq.MessageNotFound):
                await client.cancel("t", unknown)
        with pytest.raises(ternmq.UnknownTopic):
            await client.cancel("nowhere", "never")
        for wrong in (("t",), ("t", ""), (receipts[0], "id0"), ("t", 5)):
            with pytest.raises(ternmq.InvalidRequest):
                await client.cancel(*wrong)


@pytest.mark.row("L0n")
async def test_each_message_is_cancelled_or_delivered_never_both(
    api: API, real: InProcessBroker
) -> None:
    """Cancels race with due times."""
    async with api.connect(real.url) as client:
        await client.send("t", b"first")
        receipts = await client.send_many(
            "t",
            [ternmq.Message(b"%d" % one, deliver_after=0.3 + one * 0.001) for one in range(400)],
        )
        cancelled: set[bytes] = set()

        async def cancel(number: int) -> None:
            try:
                await client.cancel(receipts[number])
            except ternmq.AlreadyDelivered:
                return
            cancelled.add(b"%d" % number)

        for number in range(0, 400, 2):
            await cancel(number)
        delivered: list[bytes] = []
        while len(delivered) + len(cancelled) < 401:
            deliveries = await client.pull("t", group="g")
            assert deliveries
            for delivery in deliveries:
                delivered.append(delivery.body)
                await delivery.ack()
        assert sorted(delivered) == sorted(
            {b"first", *(b"%d" % one for one in range(400))} - cancelled
        )
        assert len(delivered) == len(set(delivered))
        assert await client.admin.scheduled("t") == []


# -- the broker stops ------------------------------------------------------------------------------


@pytest.mark.row("L0h", "L0i")
@pytest.mark.parametrize("clean", [True, False])
async def test_what_came_due_while_the_broker_was_down_comes_at_once(
    api: API, timed: InProcessBroker, clean: bool
) -> None:
    async with api.connect(timed.url) as client:
        for seconds in (30, 90, 10, 100_000, 60):
            await client.send("t", b"%d" % seconds, deliver_after=seconds)
        await advance(timed, timedelta(seconds=20))
        assert await bodies(client, "t") == [b"10"]
        timed.stop(clean=clean)
        await advance(timed, timedelta(seconds=75))
        timed.start()
        # Their records must be read from the disk first.
        await advance(timed, timedelta())
        assert await bodies(client, "t") == [b"30", b"60", b"90"]
        await advance(timed, 2 * DAY)
        assert await bodies(client, "t") == [b"100000"]


async def test_scheduled_messages_go_with_their_topic(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        receipt = await client.send("t", b"old", deliver_after=60)
        await client.admin.delete_topic("t")
        await client.send("t", b"new", deliver_after=60)
        with pytest.raises(ternmq.MessageNotFound):
            await client.cancel(receipt)
        with pytest.raises(ternmq.MessageNotFound):
            await client.get("t", receipt.id)
        await advance(timed, timedelta(seconds=100))
        assert await bodies(client, "t") == [b"new"]


async def test_the_limit_of_scheduled_messages_is_an_error_of_its_own() -> None:
    from ternmq.testing import broker

    with broker(settings={"limits.scheduled_rows": 3}) as one:
        async with ternmq.connect(one.url, timeout=0.5) as client:
            await client.send_many("t", [b"x"] * 3, deliver_after=60)
            with pytest.raises(ternmq.Busy, match="scheduled_rows"):
                await client.send("t", b"y", deliver_after=60)
            assert (await client.send("t", b"now")).offset == 0
            await advance(one, timedelta(seconds=61))
            await client.send("t", b"y", deliver_after=60)


async def test_status_counts_them(api: API, timed: InProcessBroker) -> None:
    async with api.connect(timed.url) as client:
        await client.send_many("t", [b"x"] * 3, deliver_after=60)
        await client.send_many("t", [b"x"] * 2, deliver_after=5)

        async def number(name: str) -> float:
            return float((await client.admin.status()).metrics[f"ternmq_{name}"])

        assert await number("scheduled_rows") == 5
        assert await number("scheduled_segments") == 1
        assert await number("messages_scheduled_total") == 5
        await advance(timed, timedelta(seconds=5))
        assert await number("scheduled_rows") == 3
        assert await number("fulfilled_rows_total") == 2
        assert await number("unreadable_scheduled_rows_total") == 0
        assert await number("scheduled_late_seconds") == 0.0
