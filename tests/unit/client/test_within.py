"""``within=``: which messages go into a transaction of a database, and how they are encoded."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence

import pytest

import ternmq
import ternmq.sync
from ternmq.client.producer.outgoing import Outgoing

URL = "ternmq://127.0.0.1:1"  # nobody listens: nothing here may need a broker


class Transaction:
    """A transaction of the fake database; it is its own ``Place``."""

    def __init__(self, *, awaited: bool = False) -> None:
        self.awaited = awaited
        self.rows: list[tuple[str, Outgoing]] = []
        self.threads: set[int] = set()

    def write(self, topic: str, messages: Sequence[Outgoing]) -> list[ternmq.Receipt]:
        assert not self.awaited
        self.threads.add(threading.get_ident())
        self.rows += [(topic, message) for message in messages]
        return [
            ternmq.Receipt(topic, -1, None, False, False, 0, 0, f"id-{row}", pending=True)
            for row in range(len(messages))
        ]

    async def write_awaited(self, topic: str, messages: Sequence[Outgoing]) -> list[ternmq.Receipt]:
        self.awaited, awaited = False, self.awaited
        try:
            return self.write(topic, messages)
        finally:
            self.awaited = awaited


class Store:
    """A fake database with one open transaction."""

    def __init__(self, required: str = "") -> None:
        self.block: Transaction | None = None
        self.required = required

    def place_of(self, within: object) -> Transaction | None:
        return within if isinstance(within, Transaction) else None

    def knows(self, within: object) -> bool:
        return isinstance(within, Transaction)

    def current(self) -> Transaction | None:
        return self.block

    def requires(self, topic: str) -> bool:
        return topic == self.required

    def strangeness(self, within: object) -> Exception:
        return ternmq.NotThisDatabase(f"not {within!r}")


@pytest.fixture
def blocking() -> Iterator[ternmq.sync.Client]:
    client = ternmq.sync.connect(URL, timeout=0.2)
    client.stores.add(Store())
    yield client
    client.close()


def test_a_message_is_written_in_the_callers_thread_without_a_broker(blocking) -> None:
    transaction = Transaction()
    receipt = blocking.send(
        "orders", {"id": 7}, key="k", id="mine", headers={"a": "b"}, priority=2, queue=3,
        deliver_after=60, expires_after=90, within=transaction,
    )  # fmt: skip
    assert receipt.pending
    assert receipt.id == "id-0"
    [(topic, row)] = transaction.rows
    assert transaction.threads == {threading.get_ident()}
    assert topic == "orders"
    assert (row.body, row.content_type) == (b'{"id":7}', "application/json")
    assert (row.key, row.application_id, row.headers) == ("k", "mine", {"a": "b"})
    assert (row.priority, row.queue) == (2, 3)
    assert row.due is not None
    assert row.lifetime is not None


def test_a_block_binds_every_way_to_send_but_one(blocking) -> None:
    [store] = blocking.stores._all
    store.block = transaction = Transaction()
    assert blocking.send("orders", b"1").pending
    assert [one.pending for one in blocking.send_many("orders", [b"2", b"3"])] == [True, True]
    assert blocking.send_soon("orders", b"4").result(timeout=0).pending
    with pytest.raises(ternmq.CannotConnect):  # at once
        blocking.send("orders", b"5", within=False)
    with pytest.raises(ternmq.PartialSendError):
        blocking.send_many("orders", [b"6"], within=False)
    assert [row.body for _, row in transaction.rows] == [b"1", b"2", b"3", b"4"]


def test_many_are_written_together_or_not_at_all(blocking) -> None:
    transaction = Transaction()
    with pytest.raises(ternmq.EncodeError):
        blocking.send_many("orders", [b"1", object()], within=transaction, return_errors=True)
    assert not transaction.rows
    done = blocking.send_many("orders", [b"1"], within=transaction, return_errors=True)
    assert [type(one) for one in done] == [ternmq.Receipt]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"queue": lambda message, queues: 0}, "a function cannot be written down"),
        ({"id": ""}, "id is empty"),
        ({"deliver_after": "soon"}, "deliver_after"),
        ({"priority": 9}, "priority"),
        ({"key": 7}, "key"),
    ],
)
def test_what_a_send_refuses_is_refused_at_the_call(blocking, options, error) -> None:
    transaction = Transaction()
    with pytest.raises(ternmq.InvalidRequest, match=error):
        blocking.send("orders", b"", within=transaction, **options)
    with pytest.raises(ternmq.InvalidName):
        blocking.send("no topic", b"", within=transaction)
    assert not transaction.rows


def test_a_transaction_of_nothing_known_is_refused(blocking) -> None:
    with pytest.raises(ternmq.NotThisDatabase):
        blocking.send("orders", b"", within=object())
    [store] = blocking.stores._all
    blocking.stores.remove(store)
    with pytest.raises(ternmq.InvalidRequest, match="needs an outbox"):
        blocking.send("orders", b"", within=object())


def test_each_of_several_databases_is_asked(blocking) -> None:
    class Other(Store):
        """A database that knows that a transaction is none of its own."""

        def place_of(self, within: object) -> Transaction | None:
            if isinstance(within, Transaction):
                raise ternmq.NotThisDatabase("another one")
            return None

    first = ternmq.sync.connect(URL, timeout=0.2)
    first.stores.add(Other())
    first.stores.add(Store())
    first.stores.add(Other())
    transaction = Transaction()
    assert first.send("orders", 1, within=transaction).pending
    assert len(transaction.rows) == 1
    first.close()

    only = ternmq.sync.connect(URL, timeout=0.2)
    only.stores.add(Other())
    with pytest.raises(ternmq.NotThisDatabase, match="another one"):
        only.send("orders", 1, within=transaction)
    only.close()


def test_a_required_transaction(blocking) -> None:
    blocking.stores.add(Store("payments"))
    for send in (
        lambda: blocking.send("payments", b""),
        lambda: blocking.send("payments", b"", within=False),
        lambda: blocking.send_many("payments", [b""]),
        lambda: blocking.send_soon("payments", b""),
        lambda: blocking.send_oneway("payments", b""),
    ):
        with pytest.raises(ternmq.OutsideTransaction, match="payments"):
            send()
    transaction = Transaction()
    assert blocking.send("payments", b"", within=transaction).pending


def test_a_transaction_that_is_awaited_needs_the_other_client(blocking) -> None:
    with pytest.raises(ternmq.InvalidRequest, match=r"ternmq\.connect"):
        blocking.send("orders", b"", within=Transaction(awaited=True))


def test_the_other_client_awaits() -> None:
    async def run() -> None:
        client = ternmq.connect(URL, timeout=0.2)
        store = Store()
        client.stores.add(store)
        transaction = Transaction(awaited=True)
        assert (await client.send("orders", b"1", within=transaction)).pending
        store.block = transaction
        assert (await client.send("orders", b"2")).pending
        assert (await client.send_many("orders", [b"3"]))[0].pending
        with pytest.raises(ternmq.InvalidRequest):
            client.send_soon("orders", b"4")
        store.block = Transaction()
        assert client.send_soon("orders", b"5").result().pending
        with pytest.raises(ternmq.CannotConnect):
            await client.send("orders", b"6", within=False)
        assert [row.body for _, row in transaction.rows] == [b"1", b"2", b"3"]
        await client.close()
        with pytest.raises(ternmq.ClientClosed):
            await client.send("orders", b"7", within=transaction)

    asyncio.run(run())


def test_send_middlewares_see_what_is_written(blocking) -> None:
    seen: list[ternmq.Receipt | None] = []

    def stamp(outbound: ternmq.Outbound) -> Iterator[None]:
        outbound.message.headers = {"stamp": "1"}
        try:
            yield
        finally:
            seen.append(outbound.receipt)

    blocking.send_middleware(stamp)
    transaction = Transaction()
    blocking.send("orders", b"1", within=transaction)
    blocking.send_many("orders", [b"2"], within=transaction)
    assert [row.headers for _, row in transaction.rows] == [{"stamp": "1"}] * 2
    assert [one is not None and one.pending for one in seen] == [True, True]
    with pytest.raises(ternmq.EncodeError):
        blocking.send("orders", object(), within=transaction)
    assert seen[-1] is None


def test_a_middleware_that_swallows_an_error_does_not_hide_it(blocking) -> None:
    def swallow(outbound: ternmq.Outbound) -> Iterator[None]:
        with contextlib.suppress(ternmq.EncodeError):
            yield

    blocking.send_middleware(swallow)
    with pytest.raises(ternmq.EncodeError):
        blocking.send("orders", object(), within=Transaction())
