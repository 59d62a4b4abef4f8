"""Blocks of batch sessions, with clients that note what they are asked to send."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, assert_type

import pytest

import ternmq
import ternmq.sync
from ternmq.client.content.items import ITEMS, Session, unpack
from ternmq.model.errors import (
    EncodeError,
    InvalidName,
    InvalidRequest,
    MessageTooLarge,
    SendTimeout,
)
from ternmq.reliable import BlockingHolder, Holder, batch

RECEIPT = ternmq.Receipt("orders", 0, 0, durable=True, duplicate=False, producer=1, sequence=1)
OPTIONS = ternmq.connect("ternmq://127.0.0.1").options


class Notes:
    """What a client was asked to send."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.failing = 0
        """So many of the next sends fail; they are noted all the same."""

    def note(self, topic: Any, body: Any, named: dict[str, Any]) -> ternmq.Receipt:
        self.sent.append({"topic": topic, "body": body, **named})
        if self.failing:
            self.failing -= 1
            raise SendTimeout("no answer in time")
        return RECEIPT

    @property
    def sessions(self) -> list[Session]:
        return [unpack(one["body"]) for one in self.sent]

    @property
    def bodies(self) -> list[list[int]]:
        return [[int(row.body) for row in one.rows] for one in self.sessions]


class Async(ternmq.Client):
    """An asynchronous client without a broker."""

    def __init__(self) -> None:
        super().__init__(OPTIONS)
        self.notes = Notes()

    async def send(self, topic: Any, body: object, **named: Any) -> ternmq.Receipt:
        await asyncio.sleep(0)
        return self.notes.note(topic, body, named)


class Blocking(ternmq.sync.Client):
    """A blocking client without a broker."""

    def __init__(self) -> None:
        super().__init__(OPTIONS)
        self.notes = Notes()
        self.send: Any = lambda topic, body, **named: self.notes.note(topic, body, named)


def flat(client: Async | Blocking) -> list[int]:
    return [one for bodies in client.notes.bodies for one in bodies]


async def fill_and_fail(client: Async) -> Holder:
    """Add three items to a holder of two, and fail."""
    holder = batch(client, "orders", size=2)
    with suppress(ZeroDivisionError):
        async with holder:
            for number in range(3):
                await holder.add(number)
            raise ZeroDivisionError
    return holder


async def test_each_full_session_is_sent_and_the_rest_at_the_end() -> None:
    client = Async()
    async with batch(client, "orders", size=20) as holder:
        for number in range(45):
            await holder.add(number, key=f"k{number}", tag="t", headers={"a": "b"})
            assert len(client.notes.sent) == (number + 1) // 20
        assert len(holder) == 5
        assert len(holder.receipts) == 2
    assert [one.size for one in client.notes.sessions] == [20, 20, 5]
    assert flat(client) == list(range(45))
    assert holder.receipts == [RECEIPT] * 3
    row = client.notes.sessions[2].rows[4]
    assert (row.key, row.tag, row.headers, row.content_type) == (
        "k44", "t", {"a": "b"}, "application/json",
    )  # fmt: skip


def test_each_full_session_is_sent_and_the_rest_at_the_end_blocking() -> None:
    client = Blocking()
    with batch(client, "orders", size=20) as holder:
        for number in range(45):
            holder.add(number)
            assert len(client.notes.sent) == (number + 1) // 20
    assert [one.size for one in client.notes.sessions] == [20, 20, 5]
    assert flat(client) == list(range(45))
    assert holder.receipts == [RECEIPT] * 3
    client.close()


async def test_sessions_have_names_of_their_own_that_are_their_ids() -> None:
    client = Async()
    async with batch(client, "orders", size=1) as one, batch(client, "orders", size=1) as other:
        for holder in (one, other):
            assert holder.session.endswith(".0")
            await holder.add(1)
            await holder.add(2)
    names = [session.session for session in client.notes.sessions]
    assert names == [sent["id"] for sent in client.notes.sent]
    assert len(set(names)) == 4
    assert [name.rpartition(".")[2] for name in names] == ["0", "1", "0", "1"]
    assert len({name.rpartition(".")[0] for name in names}) == 2


async def test_what_is_given_for_the_messages_is_passed_on_and_within_only_if_given() -> None:
    client, session = Async(), object()
    known = SimpleNamespace(knows=lambda within: within is session)
    client.stores.add(known)
    async with batch(client, "orders", id="import-7") as holder:
        await holder.add(1)
    async with batch(
        client, "orders", within=session, key="k", ordering_key="o", priority=2, deliver_after=3,
        headers={"a": "b"}, tag="t", timeout=4,
    ) as holder:  # fmt: skip
        await holder.add(1)
    async with batch(client, "orders", within=False) as holder:
        await holder.add(1)
    plain, full, apart = client.notes.sent
    del plain["body"], full["body"], full["id"]
    assert plain == {"topic": "orders", "id": "import-7.0", "content_type": ITEMS}
    assert full == {
        "topic": "orders", "content_type": ITEMS, "within": session, "key": "k",
        "ordering_key": "o", "priority": 2, "deliver_after": 3, "headers": {"a": "b"}, "tag": "t",
        "timeout": 4,
    }  # fmt: skip
    assert apart["within"] is False


async def test_an_exception_in_the_block_sends_nothing_of_the_rest() -> None:
    client = Async()
    holder = await fill_and_fail(client)
    assert client.notes.bodies == [[0, 1]]
    with pytest.raises(InvalidRequest, match="has ended"):
        await holder.add(4)
    with pytest.raises(InvalidRequest, match="has ended"):
        await holder.flush()


def test_an_exception_in_the_block_sends_nothing_of_the_rest_blocking() -> None:
    client = Blocking()
    with suppress(ZeroDivisionError), batch(client, "orders", size=2) as holder:
        for number in range(3):
            holder.add(number)
        raise ZeroDivisionError
    assert client.notes.bodies == [[0, 1]]
    with pytest.raises(InvalidRequest, match="has ended"):
        holder.add(4)
    with pytest.raises(InvalidRequest, match="has ended"):
        holder.flush()
    client.close()


async def test_nothing_is_sent_without_items() -> None:
    client = Async()
    async with batch(client, "orders") as holder:
        await holder.flush()
        assert holder, "also without items"
    assert not client.notes.sent
    assert not holder.receipts


async def test_flush_sends_what_is_there() -> None:
    client = Async()
    async with batch(client, "orders", size=3) as holder:
        await holder.add(1)
        await holder.flush()
        for number in (2, 3, 4, 5):
            await holder.add(number)
    assert client.notes.bodies == [[1], [2, 3, 4], [5]]


async def test_the_current_holder_is_the_innermost_and_then_the_outer_one() -> None:
    client, other = Async(), Async()
    with pytest.raises(InvalidRequest, match="no current batch"):
        batch.current()
    async with batch(client, "outer") as outer:
        assert batch.current() is outer
        async with batch(other, "inner") as inner:
            assert batch.current() is batch.current(other) is inner
            assert batch.current(client) is outer
            with pytest.raises(InvalidRequest, match="no current batch"):
                batch.current(Async())
            await batch.current().add(1)
        assert batch.current() is outer
        await batch.current().add(2)
    with pytest.raises(InvalidRequest, match="no current batch"):
        batch.current()
    assert [one.notes.bodies for one in (client, other)] == [[[2]], [[1]]]


async def test_both_kinds_of_holders_nest() -> None:
    client, blocking = Async(), Blocking()
    async with batch(client, "a") as outer:
        with batch(blocking, "b") as inner:
            found: object = batch.current()
            assert found is inner
            assert batch.current(client) is outer
    blocking.close()


async def test_the_outer_holder_is_current_after_an_error_and_after_a_failed_send() -> None:
    client = Async()
    async with batch(client, "outer") as outer:
        with pytest.raises(ZeroDivisionError):
            async with batch(client, "inner"):
                raise ZeroDivisionError
        assert batch.current() is outer
        client.notes.failing = 1
        with pytest.raises(SendTimeout):
            async with batch(client, "inner") as inner:
                await inner.add(1)
        assert batch.current() is outer


async def test_tasks_and_threads_that_are_begun_inside_see_the_holder_and_others_do_not() -> None:
    client, blocking = Async(), Blocking()

    async def deeper() -> Holder:
        return batch.current()

    async def apart() -> None:
        async with batch(client, "t") as mine:
            await asyncio.sleep(0)
            assert batch.current() is mine

    async with batch(client, "orders") as holder:
        assert await asyncio.create_task(deeper()) is holder
        assert await asyncio.to_thread(batch.current) is holder
        await asyncio.gather(apart(), apart())
        assert batch.current() is holder
    with batch(blocking, "orders") as other, ThreadPoolExecutor(1) as pool:
        with pytest.raises(InvalidRequest, match="no current batch"):
            pool.submit(batch.current).result()
        assert await asyncio.to_thread(batch.current, blocking) is other
    blocking.close()


async def test_a_task_that_outlives_the_block_is_told() -> None:
    client, go = Async(), asyncio.Event()

    async def late() -> None:
        await go.wait()
        await batch.current().add(1)

    async with batch(client, "outer"):
        async with batch(client, "orders"):
            task = asyncio.create_task(late())
            await asyncio.sleep(0)
        go.set()
        with pytest.raises(InvalidRequest, match="has ended"):
            await task
    assert client.notes.sent == []


async def test_many_tasks_may_add_at_once() -> None:
    client = Async()
    async with batch(client, "orders", size=7) as holder, asyncio.TaskGroup() as tasks:
        for number in range(100):
            tasks.create_task(holder.add(number))
    assert sorted(flat(client)) == list(range(100))
    assert [one.size for one in client.notes.sessions] == [7] * 14 + [2]


def test_many_threads_may_add_at_once() -> None:
    client = Blocking()
    start = threading.Barrier(8)
    with batch(client, "orders", size=7) as holder:

        def add(first: int) -> None:
            start.wait()
            for number in range(first, first + 250):
                holder.add(number)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(add, range(0, 2000, 250)))
    assert sorted(flat(client)) == list(range(2000))
    assert [one.size for one in client.notes.sessions] == [7] * 285 + [5]
    client.close()


async def test_a_session_whose_send_failed_is_sent_again_as_it_was() -> None:
    client = Async()
    client.notes.failing = 2
    async with batch(client, "orders", size=2) as holder:
        await holder.add(0)
        with pytest.raises(SendTimeout):
            await holder.add(1)
        with pytest.raises(SendTimeout):
            await holder.add(2)
        assert len(holder) == 2, "the third was not added"
        await holder.add(3)
    first, again, third, rest = client.notes.sent
    assert first == again == third
    assert rest["id"] != first["id"]
    assert client.notes.bodies[2:] == [[0, 1], [3]]


def test_a_session_whose_send_failed_is_sent_again_as_it_was_blocking() -> None:
    client = Blocking()
    client.notes.failing = 2
    with batch(client, "orders", size=2) as holder:
        holder.add(0)
        with pytest.raises(SendTimeout):
            holder.add(1)
        with pytest.raises(SendTimeout):
            holder.flush()
    assert [one["body"] for one in client.notes.sent] == [client.notes.sent[0]["body"]] * 3
    client.close()


async def test_a_cancelled_send_keeps_the_session() -> None:
    client = Async()
    async with batch(client, "orders", size=1) as holder:
        adding = asyncio.create_task(holder.add(1))
        await asyncio.sleep(0)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert len(holder) == 1
    assert client.notes.bodies == [[1]]


async def test_an_item_that_does_not_fit_leaves_the_holder_as_it_was() -> None:
    client = Async()
    async with batch(client, "orders", size=2) as holder:
        await holder.add(b"1")
        with pytest.raises(MessageTooLarge):
            await holder.add(bytes(16 * 1024 * 1024))
        await holder.add(b"2")
    assert client.notes.bodies == [[1, 2]]


@pytest.mark.parametrize(
    ("value", "named", "error"),
    [
        (object(), {}, EncodeError),
        (float("nan"), {}, EncodeError),
        (ternmq.Message(b"x"), {}, EncodeError),
        (b"x", {"key": 7}, InvalidRequest),
        (b"x", {"key": "x" * 5000}, InvalidRequest),
        (b"x", {"tag": None}, InvalidRequest),
        (b"x", {"headers": {"a": 1}}, InvalidRequest),
        (b"x", {"headers": [("a", "b")]}, InvalidRequest),
        (b"x", {"content_type": ITEMS}, InvalidRequest),
    ],
)
async def test_what_cannot_be_an_item_leaves_the_holder_as_it_was(
    value: Any, named: dict[str, Any], error: type[Exception]
) -> None:
    client, blocking = Async(), Blocking()
    async with batch(client, "orders") as holder:
        with pytest.raises(error):
            await holder.add(value, **named)
    with batch(blocking, "orders") as other, pytest.raises(error):
        other.add(value, **named)
    assert client.notes.sent == blocking.notes.sent == []
    blocking.close()


async def test_a_holder_is_used_once_and_in_its_block() -> None:
    client = Async()
    holder = batch(client, "orders")
    with pytest.raises(InvalidRequest, match="has not begun"):
        await holder.add(1)
    async with holder:
        with pytest.raises(InvalidRequest, match="make one for each use"):
            async with holder:
                pass
        assert batch.current() is holder
    with pytest.raises(InvalidRequest, match="make one for each use"):
        async with holder:
            pass


@pytest.mark.parametrize("make", [Async, Blocking])
def test_wrong_arguments_are_errors_at_once(make: Callable[[], Any]) -> None:
    client = make()
    wrong: Any = batch
    for size in (0, -1, 1.5, True, None):
        with pytest.raises(InvalidRequest, match="size"):
            wrong(client, "orders", size=size)
    for id_ in ("", "x" * 117, 7):
        with pytest.raises(InvalidRequest, match="id"):
            wrong(client, "orders", id=id_)
    assert batch(client, "orders", id="x" * 116).session == "x" * 116 + ".0"
    with pytest.raises(InvalidName):
        batch(client, "no topic")
    with pytest.raises(TypeError, match="no argument 'prio'"):
        wrong(client, "orders", prio=1)
    with pytest.raises(InvalidRequest, match=r"ternmq\.connect"):
        wrong("ternmq://127.0.0.1", "orders")
    if isinstance(client, Blocking):
        client.close()


def test_a_copy_in_a_forked_child_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the names of the parent's sessions."""
    client = Blocking()
    with batch(client, "orders", size=2) as holder:
        holder.add(1)
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: -1)
            for call in (holder.flush, lambda: holder.add(2)):
                with pytest.raises(ternmq.ClientForked):
                    call()
    assert client.notes.bodies == [[1]]
    client.close()


def test_a_coroutine_that_a_thread_drops_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """As for the methods of the client: an ``add`` that is not awaited would lose the item."""

    async def run() -> None:
        client = Async()
        client._session.home = threading.get_ident()
        async with batch(client, "orders") as holder:

            def forget() -> None:
                holder.add(1)  # type: ignore[unused-coroutine]

            await asyncio.to_thread(forget)

    asyncio.run(run())
    assert "holder.add() was called in a thread and not awaited" in caplog.text


async def types() -> None:
    """Is not called: mypy checks it."""
    client, blocking = ternmq.connect(), ternmq.sync.connect()
    assert_type(batch(client, "t"), Holder)
    assert_type(batch(blocking, "t", size=3, priority=1), BlockingHolder)
    assert_type(batch.current(), Holder)
    assert_type(batch.current(blocking), BlockingHolder)
    async with batch(client, "t") as one:
        assert_type(one, Holder)
        assert_type(await one.add(1), None)
    with batch(blocking, "t") as other:
        assert_type(other, BlockingHolder)


def test_importing_the_client_does_not_import_this() -> None:
    code = "import sys, ternmq; ternmq.connect; print('ternmq.reliable' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert told.stdout == b"False\n"
