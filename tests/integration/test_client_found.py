"""Messages that were looked up, and bodies that are not what they should be."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

import ternmq
from ternmq.testing import InProcessBroker, broker
from tests.integration.client_shapes import API


@dataclass
class Order:
    number: int


async def test_a_message_that_is_looked_up_is_decoded_as_a_delivery_is(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        client.codecs.register(
            "text/number",
            encode=lambda body: str(body).encode(),
            decode=lambda body, _: Order(int(body)),
        )
        await client.send("t", Order(7), key="k", id="seven")
        await client.send("t", "8", content_type="text/number")
        await client.send("t", b"no order", content_type="application/json", key="k")
        found = await client.get("t", "seven")
        assert found.decode(Order) == Order(7)
        assert found.decode(dict[str, int]) == {"number": 7}
        again = pickle.loads(pickle.dumps(found))
        assert again == found
        assert again.decode(Order) == Order(7)
        assert (await client.get("t", offset=1)).decode(Order) == Order(8)
        wrong, right = await client.find("t", key="k")
        assert (right.decode(Order), wrong.value) == (Order(7), b"no order")
        with pytest.raises(
            ternmq.DecodeError, match=r"^message 0/2 of t: the body is not a valid Order: "
        ):
            wrong.decode(Order)
        for one in await client.pull("t", group="g"):
            await one.reject("wrong")
        dead = [one async for one in client.deadletters.browse("t", "g")]
        assert dead[0].message.decode(Order) == Order(7)


async def test_a_body_that_is_not_what_its_type_says_is_named_with_its_place(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        await client.send("t", b"{", content_type="application/json")
        valid = r"^message 0/0 of t: the body is not valid application/json: Input data was trunc"
        async for one in client.read("t"):
            with pytest.raises(ternmq.DecodeError, match=valid):
                _ = one.value
            with pytest.raises(
                ternmq.DecodeError, match=r"^message 0/0 of t: the body is not a valid int"
            ):
                one.decode(int)


@pytest.mark.parametrize("id_", ["2026:07", "1:1", "00f3a1c2d4e5b697:1f"])
async def test_an_own_id_may_look_like_one_of_the_broker(
    api: API, real: InProcessBroker, id_: str
) -> None:
    async with api.connect(real.url) as client:
        first = await client.send("other", "of another topic")
        await client.send("t", "mine", id=id_)
        await client.send("t", "theirs", id=first.id)
        found = await client.get("t", id_)
        assert (found.value, found.application_id) == ("mine", id_)
        assert (await client.get("t", found.id)).value == "mine"
        assert (await client.get("t", first.id)).value == "theirs"
        assert (await client.get("other", first.id)).value == "of another topic"
        for one in await client.pull("t", group="g", max_messages=2):
            await one.ack()
        done = await client.replay("t", "g", ids=[id_, first.id, "1:2"])
        assert (done.again, done.missing) == (2, ("1:2",))
        again = await client.pull("t", group="g", max_messages=2)
        assert {one.value for one in again} == {"mine", "theirs"}
        with pytest.raises(ternmq.MessageNotFound, match=r"^no message 1:2 is kept in 't'"):
            await client.get("t", "1:2")


@pytest.mark.parametrize("use", ["pull", "run"])
async def test_a_group_on_a_topic_that_is_not_there_is_told_of_one_like_it(
    api: API, use: str
) -> None:
    with broker(settings={"create_topics": False}) as one:
        async with api.connect(one.url) as client:
            await client.admin.create_topic("orders")
            worker = ternmq.connect(one.url)

            @worker.handler("order", group="g")
            async def handle(body: bytes) -> None: ...

            with pytest.raises(ternmq.UnknownTopic, match="did you mean 'orders'") as raised:
                await (client.pull("order", group="g") if use == "pull" else worker.run())
            # The command line shows the hint of an error that has its own.
            assert "`ternmq apply MODULE:CLIENT`" in vars(raised.value)["hint"]
            with pytest.raises(ternmq.UnknownTopic) as raised:
                await client.pull("payments", group="g")
            assert "did you mean" not in str(raised.value)


async def test_a_body_above_every_limit_is_not_told_of_a_setting(api: API) -> None:
    with broker(settings={"body": "16MiB", "segment": "32MiB"}) as one:
        async with api.connect(one.url) as client:
            with pytest.raises(ternmq.MessageTooLarge, match="no broker accepts more than") as no:
                await client.send("t", b"x" * 17_000_000)
            assert "the setting" not in str(no.value)


async def test_a_span_that_ends_before_it_begins_is_refused(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        await client.send("t", "8", key="k")
        first = datetime(2026, 1, 1, tzinfo=UTC)
        for since in (first, first + timedelta(seconds=1)):
            with pytest.raises(ternmq.InvalidRequest, match=r"since \(2026.* must be before until"):
                await client.find("t", key="k", since=since, until=first)
        assert await client.find("t", key="k", until=first) == []
        assert len(await client.find("t", key="k", since=first)) == 1


async def test_a_priority_and_an_expiry_are_found(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t", levels=4)
        await client.send("t", "plain", id="plain")
        await client.send("t", "both", id="both", priority=3, expires_after=60)
        plain, both = await client.get("t", "plain"), await client.get("t", "both")
        assert (plain.priority, plain.expires_at) == (0, None)
        assert both.priority == 3
        assert both.expires_at is not None
        assert timedelta() < both.expires_at - both.stored_at < timedelta(seconds=61)
        again = pickle.loads(pickle.dumps(both))
        assert (again.priority, again.expires_at) == (both.priority, both.expires_at)
