"""What a store in Redis promises beyond what all stores do: claims that end."""

from __future__ import annotations

import asyncio

import pytest

import ternmq
from ternmq.reliable import Inbox, idempotent
from ternmq.reliable.inbox.claims import Answer
from ternmq.reliable.inbox.entry import Entry
from ternmq.reliable.inbox.redis import RedisClaims
from tests.integration.reliable.inboxes import AwaitedMessage
from tests.integration.reliable.redises import FakeRedis, over

ENTRY = Entry("orders/billing", b"order-7")


def claims(fake: FakeRedis) -> RedisClaims:
    return RedisClaims(lambda: fake, "a fake", 1000)


def test_the_claim_of_a_process_that_died_ends() -> None:
    fake = FakeRedis()
    assert claims(fake).claim(ENTRY, "dead") == Answer(claimed=True)
    assert claims(fake).claim(ENTRY, "next") == Answer(busy=True)
    fake.clock_s = 1.1
    assert claims(fake).claim(ENTRY, "next") == Answer(claimed=True)


def test_a_claim_that_has_ended_is_not_given_up_by_its_first_owner() -> None:
    fake = FakeRedis()
    claims(fake).claim(ENTRY, "slow")
    fake.clock_s = 1.1
    claims(fake).claim(ENTRY, "next")
    claims(fake).give_up(ENTRY, "slow")
    assert claims(fake).claim(ENTRY, "third") == Answer(busy=True)


def test_what_is_done_is_known_for_as_long_as_it_is_kept() -> None:
    fake = FakeRedis()
    one = claims(fake)
    one.claim(ENTRY, "me")
    one.finish(ENTRY, "me", b"\0result", 60_000)
    one.give_up(ENTRY, "me")  # it is no claim any more
    fake.clock_s = 59
    assert one.claim(ENTRY, "you") == Answer(result=b"\0result")
    fake.clock_s = 61
    assert one.claim(ENTRY, "you") == Answer(claimed=True)


def test_handlers_that_are_awaited() -> None:
    async def run() -> None:
        with over(FakeRedis(), wait_s=0.05) as inbox:
            calls = []

            @idempotent(inbox, result=True)
            async def handle(order: int) -> int:
                calls.append(order)
                if len(calls) == 1:
                    raise ternmq.Reject("not yet")
                return order

            with pytest.raises(ternmq.Reject):
                await handle(7, AwaitedMessage("a"))
            assert await handle(7, AwaitedMessage("a")) == 7
            assert await handle(8, AwaitedMessage("a")) == 7
            assert calls == [7, 7]

    asyncio.run(run())


def test_without_the_package_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "redis", None)
    with pytest.raises(ternmq.InvalidRequest, match=r"ternmq\[redis\]"):
        Inbox.redis("redis://localhost")
