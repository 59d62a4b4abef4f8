"""What every store of an inbox promises: three databases, shards, memory, and Redis."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from ternmq.reliable import Inbox
from ternmq.reliable.inbox.entry import Entry
from ternmq.reliable.inbox.store import Asked, InProgress, Store
from tests.integration.reliable.inboxes import shop, sqlite
from tests.redises import redis_server

DAY_MS = 24 * 3_600_000
ASKED = Asked((), keep_ms=DAY_MS, result=True)
WAIT_S = 1.0
BUSY_S = 20.0
"""Longest wait of a test for another thread."""


class Undo(Exception):
    """Rolls a visit back."""


def entry(id_: str = "order-7", consumer: str = "orders/billing") -> Entry:
    return Entry(consumer, id_.encode())


@pytest.fixture(params=["sqlite", "postgresql", "mariadb", "shards", "memory", "redis"])
def inbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Inbox]:
    with ExitStack() as stack:
        if request.param == "memory":
            yield Inbox.memory(wait=WAIT_S)
            return
        if request.param == "redis":
            server = stack.enter_context(redis_server(tmp_path))
            yield stack.enter_context(Inbox.redis(server.url, wait=WAIT_S))
            return
        if request.param == "shards":
            urls = {name: sqlite(tmp_path, name) for name in ("a", "b")}
            engines = {name: stack.enter_context(shop(url)) for name, url in urls.items()}
            made = Inbox(shards=engines, wait=WAIT_S)
        else:
            url = sqlite(tmp_path)
            if request.param != "sqlite":
                url = request.getfixturevalue("servers").new(request.param, tmp_path)
            made = Inbox(stack.enter_context(shop(url)), wait=WAIT_S)
        made.prepare()
        yield stack.enter_context(made)


@pytest.fixture
def store(inbox: Inbox) -> Store:
    return inbox.store


def is_known(store: Store, one: Entry) -> bool:
    """Visit a message, and leave no trace of it."""
    known = True
    with suppress(Undo), store.visit(one, ASKED) as visit:
        known = visit.known
        if not known:
            raise Undo
    return known


def handle(store: Store, one: Entry, result: bytes | None = None) -> bool:
    """Handle a message; return whether it was new."""
    with store.visit(one, ASKED) as visit:
        known = visit.known
        if not known:
            visit.result = result
    return not known


def test_a_message_is_known_once_it_was_handled(store) -> None:
    assert handle(store, entry())
    assert not handle(store, entry())
    assert not handle(store, entry())


def test_an_error_leaves_no_trace(store) -> None:
    with pytest.raises(Undo), store.visit(entry(), ASKED):
        raise Undo
    assert not is_known(store, entry())
    assert handle(store, entry())


def test_ids_are_compared_by_byte_within_their_consumer(store) -> None:
    ids = ["Order-7", "order-7", "order-7 ", " order-7", "örder-7", "order-70", "order-7\t"]
    consumers = ["orders/billing", "orders/Billing", "Orders/billing"]
    every = [entry(id_, consumer) for id_ in ids for consumer in consumers]
    assert [handle(store, one) for one in every] == [True] * len(every)
    assert all(is_known(store, one) for one in every)


def test_the_longest_id_and_names(store) -> None:
    longest = entry("ä" * 64, f"{'t' * 127}/{'g' * 127}")
    assert handle(store, longest)
    assert is_known(store, longest)


@pytest.mark.parametrize("committed", [True, False])
def test_the_second_of_two_at_once_waits_for_the_first(store, committed) -> None:
    inside, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def first() -> None:
        with store.visit(entry(), ASKED) as visit:
            assert not visit.known
            inside.set()
            assert go_on.wait(BUSY_S)
            order.append("first")
            if not committed:
                raise Undo

    def second() -> bool:
        with store.visit(entry(), ASKED) as visit:
            order.append("second")
            known: bool = visit.known
        return known

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(first)
        assert inside.wait(BUSY_S)
        other = threads.submit(second)
        threading.Timer(WAIT_S / 4, go_on.set).start()
        assert other.result(BUSY_S) is committed
        assert order == ["first", "second"]
        assert (one.exception(BUSY_S) is None) is committed


def test_waiting_ends(store) -> None:
    with ThreadPoolExecutor(1) as threads, store.visit(entry(), ASKED):
        other = threads.submit(handle, store, entry())
        with pytest.raises(InProgress):
            other.result(BUSY_S)  # without an end, the first visit ends with this error
    assert is_known(store, entry())


def test_a_result_is_returned_for_a_known_message(store) -> None:
    result = bytes(range(256)) * 256  # 64 KiB
    assert handle(store, entry("with"), result)
    assert handle(store, entry("without"))
    with store.visit(entry("with"), ASKED) as visit:
        assert (visit.known, visit.result) == (True, result)
    with store.visit(entry("without"), ASKED) as visit:
        assert (visit.known, visit.result) == (True, None)


def test_results_belong_to_their_message(store) -> None:
    every = [entry("a"), entry("b"), entry("a", "orders/shipping")]
    for number, one in enumerate(every):
        assert handle(store, one, b"%d" % number)
    for number, one in enumerate(every):
        with store.visit(one, ASKED) as visit:
            assert (visit.known, visit.result) == (True, b"%d" % number)


def test_what_is_forgotten_is_new(store) -> None:
    for one in "abc":
        handle(store, entry(one))
    assert store.forget([entry("a"), entry("c"), entry("never")]) == 2
    assert [is_known(store, entry(one)) for one in "abc"] == [False, True, False]


@pytest.mark.parametrize("inbox", ["postgresql", "mariadb", "memory", "redis"], indirect=True)
def test_messages_beside_each_other_do_not_wait(inbox) -> None:
    with inbox.store.visit(entry("a"), ASKED) as one, inbox.store.visit(entry("b"), ASKED) as two:
        assert not one.known
        assert not two.known


def test_a_visit_that_is_awaited_sees_the_same(tmp_path) -> None:
    url = sqlite(tmp_path)

    async def awaited() -> None:
        async with Inbox(url, wait=WAIT_S) as inbox:
            inbox.prepare()
            for known in (False, True):
                async with inbox.store.visit_awaited(entry("new"), ASKED) as visit:
                    assert visit.known is known
            with pytest.raises(Undo):
                async with inbox.store.visit_awaited(entry("undone"), ASKED):
                    raise Undo
            assert not is_known(inbox.store, entry("undone"))
            async with inbox.store.visit_awaited(entry("held"), ASKED):
                with pytest.raises(InProgress):
                    await asyncio.to_thread(handle, inbox.store, entry("held"))
            assert is_known(inbox.store, entry("held"))
            inbox.close()

    asyncio.run(awaited())
