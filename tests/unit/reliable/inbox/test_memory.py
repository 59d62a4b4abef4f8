"""Claims in memory; tests/integration/reliable has what all stores promise."""

from __future__ import annotations

import asyncio

import pytest

from ternmq.reliable import Inbox
from ternmq.reliable.inbox.claims import Answer, ClaimStore
from ternmq.reliable.inbox.entry import Entry
from ternmq.reliable.inbox.memory import MemoryClaims
from ternmq.reliable.inbox.store import Asked, InProgress

CLAIMED, BUSY, KNOWN = Answer(claimed=True), Answer(busy=True), Answer()
ASKED = Asked((), keep_ms=1000, result=False)


def entry(id_: str = "a") -> Entry:
    return Entry("orders/billing", id_.encode())


def test_a_claim_is_ended_or_finished() -> None:
    claims = MemoryClaims(10)
    assert claims.claim(entry(), "me") == CLAIMED
    assert claims.claim(entry(), "you") == BUSY
    claims.give_up(entry(), "you")  # it is not theirs
    assert claims.claim(entry(), "you") == BUSY
    claims.give_up(entry(), "me")
    assert claims.claim(entry(), "you") == CLAIMED
    claims.finish(entry(), "you", b"r", 1000)
    assert claims.claim(entry(), "me") == Answer(result=b"r")


def test_a_message_is_known_for_a_while() -> None:
    now = 0.0
    claims = MemoryClaims(10, clock=lambda: now)
    claims.claim(entry(), "me")
    claims.finish(entry(), "me", None, 1000)
    now = 0.999
    assert claims.claim(entry(), "me") == KNOWN
    now = 1.0
    assert claims.claim(entry(), "me") == CLAIMED


def test_the_oldest_go_first() -> None:
    claims = MemoryClaims(2)
    for one in "abc":
        claims.claim(entry(one), "me")
        claims.finish(entry(one), "me", None, 1000)
    assert len(claims) == 2
    assert [claims.claim(entry(one), "you") for one in "bca"] == [KNOWN, KNOWN, CLAIMED]


def test_a_forked_child_does_not_wait_for_handlers_of_its_parent() -> None:
    claims = MemoryClaims(2)
    claims.claim(entry(), "parent")
    claims.leave()
    assert claims.claim(entry(), "child") == CLAIMED


async def test_visits_that_are_awaited() -> None:
    store = ClaimStore(MemoryClaims(10), 0.02)
    with pytest.raises(ZeroDivisionError):
        async with store.visit_awaited(entry(), ASKED):
            raise ZeroDivisionError
    async with store.visit_awaited(entry(), ASKED) as visit:
        assert not visit.known
        with pytest.raises(InProgress):
            async with store.visit_awaited(entry(), ASKED):
                pass
    async with store.visit_awaited(entry(), ASKED) as visit:
        assert visit.known


async def test_one_that_waits_goes_on_when_the_other_is_done() -> None:
    store = ClaimStore(MemoryClaims(10), 30)
    async with store.visit_awaited(entry(), ASKED):
        waiting = asyncio.create_task(_is_known(store))
        await asyncio.sleep(0)
    assert await asyncio.wait_for(waiting, 20)


async def _is_known(store: ClaimStore) -> bool:
    async with store.visit_awaited(entry(), ASKED) as visit:
        return visit.known


def test_an_inbox_in_memory_needs_nothing() -> None:
    with Inbox.memory() as inbox:
        assert (inbox.prepare(), inbox.clean()) == ([], 0)
        assert inbox.forget(["a"], topic="orders", group="billing") == 0
