"""What runs around handlers, sends and the run; and what handlers depend on."""
# Without `from __future__ import annotations`: handlers here name providers that are local.

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Annotated, Any

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker
from tests.asynchronous import until


async def handled(client: ternmq.Client, *bodies: object, while_it_runs: Callable[[], object]):
    """Send bodies to `orders` and run the client until something holds."""
    async with ternmq.connect(str(client.options.address)) as sender:
        await sender.send_many("orders", [*bodies])
    running = asyncio.ensure_future(client.run())
    await until(lambda: running.done() or while_it_runs())
    client.stop()
    await running


async def test_middleware_runs_around_a_handler_the_first_outermost(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    seen: list[str] = []

    @client.handler_middleware
    async def outer(delivery: ternmq.Delivery) -> AsyncIterator[None]:
        seen.append(f"outer in {delivery.offset}")
        yield
        seen.append("outer out")

    @client.handler_middleware
    def inner(delivery: ternmq.Delivery) -> Iterator[None]:
        seen.append("inner in")
        yield
        seen.append("inner out")

    @client.handler("orders", group="g")
    async def handle(body: bytes) -> None:
        seen.append(body.decode())

    await handled(client, b"x", while_it_runs=lambda: "outer out" in seen)
    assert seen == ["outer in 0", "inner in", "x", "inner out", "outer out"]


async def test_around_a_handler_in_a_thread(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    seen: list[tuple[str, str, type]] = []

    def note(what: str, delivery: object) -> None:
        place = "loop" if threading.current_thread() is threading.main_thread() else "thread"
        seen.append((what, place, type(delivery)))

    @client.handler_middleware
    @contextmanager
    def blocking(delivery: ternmq.sync.Delivery) -> Iterator[None]:
        note("blocking", delivery)
        yield

    @client.handler_middleware
    async def awaited(delivery: ternmq.Delivery) -> AsyncIterator[None]:
        note("awaited", delivery)
        yield
        note("end", delivery)

    @client.handler("orders", group="g")
    def handle(delivery: ternmq.sync.Delivery) -> None:
        note("handler", delivery)

    await handled(client, b"x", while_it_runs=lambda: len(seen) == 4)
    assert seen == [
        ("awaited", "loop", ternmq.Delivery),
        ("blocking", "thread", ternmq.sync.Delivery),
        ("handler", "thread", ternmq.sync.Delivery),
        ("end", "loop", ternmq.Delivery),
    ]


async def test_a_middleware_turns_an_error_into_another_and_swallows_one(
    real: InProcessBroker,
) -> None:
    client = ternmq.connect(real.url)
    calls: list[str] = []

    @client.handler_middleware
    async def translate(delivery: ternmq.Delivery) -> AsyncIterator[None]:
        try:
            yield
        except ValueError as error:
            raise ternmq.Reject(f"no such card: {error}") from error
        except KeyError:
            pass

    @client.handler("orders", group="g")
    async def handle(body: str) -> None:
        calls.append(body)
        raise ValueError(body) if body == "bad" else KeyError(body)

    await handled(client, "bad", "fine", while_it_runs=lambda: len(calls) == 2)
    async with ternmq.connect(real.url) as looking:
        (dead,) = [one async for one in looking.deadletters.browse("orders", "g")]
        assert dead.reason == "no such card: bad"
        (queue,) = (await looking.admin.group("orders", "g")).queues
        assert (queue.floor, queue.dead) == (2, 1)


async def test_what_a_handler_depends_on_is_made_once_for_a_message_and_undone(
    real: InProcessBroker,
) -> None:
    client = ternmq.connect(real.url)
    seen: list[str] = []

    async def connection(delivery: ternmq.Delivery) -> AsyncIterator[str]:
        seen.append("connect")
        try:
            yield f"connection for {delivery.offset}"
        except RuntimeError:
            seen.append("rolled back")
            raise
        else:
            seen.append("committed")

    def repository(on: Annotated[str, ternmq.Depends(connection)]) -> str:
        return f"repository on {on}"

    async def mailer() -> str:
        return "mailer"

    @client.handler("orders", group="g", retry=ternmq.RetryPolicy(first=0.001, attempts=2))
    async def handle(
        body: str,
        repo: Annotated[str, ternmq.Depends(repository)],
        delivery: ternmq.Delivery,
        on: Annotated[str, ternmq.Depends(connection)],
        *,
        mail: Annotated[str, ternmq.Depends(mailer)],
    ) -> None:
        seen.append(f"{body}: {repo}, {on}, {mail}, attempt {delivery.attempt}")
        if delivery.attempt == 1:
            raise RuntimeError("try again")

    await handled(client, "x", while_it_runs=lambda: "committed" in seen)
    told = "repository on connection for 0, connection for 0, mailer"
    assert seen == [
        "connect", f"x: {told}, attempt 1", "rolled back",
        "connect", f"x: {told}, attempt 2", "committed",
    ]  # fmt: skip


async def test_a_handler_in_a_thread_depends_on_what_is_made_there(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    seen: list[object] = []

    def session(delivery: ternmq.sync.Delivery) -> Iterator[int]:
        seen.append(threading.get_ident())
        yield delivery.offset
        seen.append(threading.get_ident())

    depends = ternmq.Depends(session)

    @client.handler("orders", group="g")
    def handle(body: str, one: Any = depends) -> None:
        seen.append((body, one, threading.get_ident()))

    await handled(client, "x", while_it_runs=lambda: len(seen) == 3)
    begun, handled_in, ended = seen
    assert handled_in == ("x", 0, begun)
    assert begun == ended != threading.get_ident()


async def test_a_provider_is_overridden(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    seen: list[str] = []

    def bank() -> str:
        raise AssertionError("the real one")

    @client.handler("orders", group="g")
    async def handle(body: str, bank: Annotated[str, ternmq.Depends(bank)]) -> None:
        seen.append(bank)

    client.overrides[bank] = lambda: "a fake"
    await handled(client, "x", while_it_runs=lambda: seen)
    assert seen == ["a fake"]


def test_what_cannot_be_given_is_refused_where_it_is_declared() -> None:
    client = ternmq.connect()

    def wants(unknown: int) -> None: ...

    with pytest.raises(ternmq.InvalidHandler, match=r"provider wants.*'unknown'"):

        @client.handler("orders", group="a")
        async def first(body: str, one: Annotated[None, ternmq.Depends(wants)]) -> None: ...

    async def awaited() -> None: ...

    with pytest.raises(ternmq.InvalidHandler, match=r"is a `def`.*provider awaited"):

        @client.handler("orders", group="a")
        def second(body: str, one: Annotated[None, ternmq.Depends(awaited)]) -> None: ...

    def egg(hen: Annotated[Any, ternmq.Depends(lambda: None)]) -> None: ...

    def hen(egg: Annotated[Any, ternmq.Depends(egg)]) -> None: ...

    egg.__annotations__["hen"] = Annotated[Any, ternmq.Depends(hen)]
    with pytest.raises(ternmq.InvalidHandler, match=r"hen -> egg -> hen depends on itself"):

        @client.handler("orders", group="a")
        async def third(body: str, one: Annotated[None, ternmq.Depends(hen)]) -> None: ...

    with pytest.raises(ternmq.InvalidHandler, match=r"Depends takes a function, not 7"):

        @client.handler("orders", group="a")
        async def fourth(body: str, one: Annotated[None, ternmq.Depends(7)]) -> None: ...

    with pytest.raises(ternmq.InvalidHandler, match="is positional-only"):

        @client.handler("orders", group="a")
        async def fifth(body: str, one: Annotated[None, ternmq.Depends(hen)], /) -> None: ...


@pytest.mark.parametrize("add", ["handler_middleware", "send_middleware", "lifespan"])
def test_what_is_no_middleware_is_refused(add: str) -> None:
    for client in (ternmq.connect(), ternmq.sync.connect()):
        with pytest.raises(ternmq.InvalidHandler, match="yields once"):
            getattr(client, add)(lambda delivery: None)


# ------------------------------------------------------------------------------------------- sends


def stamping(seen: list[object]) -> Callable[[ternmq.Outbound], Iterator[None]]:
    def stamp(outbound: ternmq.Outbound) -> Iterator[None]:
        outbound.message.headers = {**outbound.message.headers, "stamp": outbound.topic}
        try:
            yield
        except ternmq.TernMQError as error:
            seen.append(type(error))
            raise
        assert outbound.receipt is not None or outbound.message.body == b"oneway"
        seen.append(outbound.message.body)

    return stamp


@pytest.mark.parametrize("blocking", [False, True])
async def test_every_way_to_send_passes_through_middleware(
    real: InProcessBroker, blocking: bool
) -> None:
    seen: list[object] = []
    mine = {"mine": "1"}

    async def asynchronous() -> None:
        async with ternmq.connect(real.url) as client:
            client.send_middleware(stamping(seen))
            await client.send("orders", b"send", headers=mine)
            await client.send_soon("orders", b"soon", headers=mine)
            client.send_oneway("orders", b"oneway", headers=mine)
            message = ternmq.Message(b"many", headers=mine)
            await client.send_many("orders", [message, b"bare"])
            assert message.headers == mine

    def synchronous() -> None:
        with ternmq.sync.connect(real.url) as client:
            client.send_middleware(stamping(seen))
            client.send("orders", b"send", headers=mine)
            client.send_soon("orders", b"soon", headers=mine).result(30)
            client.send_oneway("orders", b"oneway", headers=mine)
            client.send_many("orders", [ternmq.Message(b"many", headers=mine), b"bare"])

    await (asyncio.to_thread(synchronous) if blocking else asynchronous())
    assert mine == {"mine": "1"}
    assert seen == [b"send", b"soon", b"oneway", b"many", b"bare"]
    async with ternmq.connect(real.url) as client:
        found = [one async for one in client.read("orders")]
    assert [one.body for one in found] == seen
    assert [dict(one.headers) for one in found[:4]] == [{"mine": "1", "stamp": "orders"}] * 4
    assert dict(found[4].headers) == {"stamp": "orders"}


async def test_a_failed_send_is_raised_at_the_yield_and_from_the_call(
    real: InProcessBroker,
) -> None:
    seen: list[object] = []
    large = b"x" * (2 * 1024 * 1024)
    async with ternmq.connect(real.url) as client:
        client.send_middleware(stamping(seen))
        await client.send("orders", b"first")
        with pytest.raises(ternmq.MessageTooLarge):
            await client.send("orders", large)
        with pytest.raises(ternmq.MessageTooLarge):
            client.send_soon("orders", large)
        with pytest.raises(ternmq.PartialSendError) as caught:
            await client.send_many("orders", [b"good", large, b"better"])
        assert [failure.row for failure in caught.value.failures] == [1]
    assert seen == [
        b"first", ternmq.MessageTooLarge, ternmq.MessageTooLarge, b"good", ternmq.MessageTooLarge,
        b"better",
    ]  # fmt: skip


async def test_failures_of_many_name_what_was_given(real: InProcessBroker) -> None:
    """Sent again, a message passes the middlewares again: it must not have passed them before."""
    large = ternmq.Message(b"x" * (2 * 1024 * 1024), headers={"mine": "1"})
    bare = b"y" * (2 * 1024 * 1024)
    async with ternmq.connect(real.url) as client:
        client.send_middleware(stamping([]))
        with pytest.raises(ternmq.PartialSendError) as caught:
            await client.send_many("orders", [large, b"good", bare])
    first, second = caught.value.failures
    assert first.message is large
    assert second.message is bare
    assert large.headers == {"mine": "1"}


async def test_a_middleware_cannot_send_a_message_elsewhere(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:

        @client.send_middleware
        def elsewhere(outbound: ternmq.Outbound) -> Iterator[None]:
            outbound.topic = "others"
            yield

        match = "cannot change the topic"
        with pytest.raises(ternmq.InvalidRequest, match=match):
            await client.send("orders", b"x")
        with pytest.raises(ternmq.InvalidRequest, match=match):
            client.send_soon("orders", b"x")
        with pytest.raises(ternmq.InvalidRequest, match=match):
            client.send_oneway("orders", b"x")
        with pytest.raises(ternmq.PartialSendError, match=match):
            await client.send_many("orders", [b"x"])
        assert await client.admin.topics() == []


async def test_a_failure_that_nobody_waits_for_is_still_told_at_flush(
    real: InProcessBroker,
) -> None:
    seen: list[object] = []
    async with ternmq.connect(real.url) as client:
        client.send_middleware(stamping(seen))
        await client.admin.create_topic("one", ordered=True)
        client.send_soon("one", b"no ordering key")
        with pytest.raises(ternmq.UnsentMessages):
            await client.flush()
    assert seen == [ternmq.OrderingKeyRequired]


async def test_an_error_of_a_middleware_keeps_a_message_from_being_sent(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[str] = []
    async with ternmq.connect(real.url) as client:

        @client.send_middleware
        def outer(outbound: ternmq.Outbound) -> Iterator[None]:
            try:
                yield
            finally:
                left.append("outer")

        @client.send_middleware
        def refuses(outbound: ternmq.Outbound) -> Iterator[None]:
            if outbound.message.body == b"no":
                raise RuntimeError("not this one")
            yield
            raise LookupError("behind it")

        await client.admin.create_topic("orders")
        with pytest.raises(RuntimeError, match="not this one"):
            await client.send("orders", b"no")
        with pytest.raises(ternmq.PartialSendError, match="not this one") as caught:
            await client.send_many("orders", [b"no", b"no"])
        assert caught.value.receipts == [None, None]
        assert left == ["outer"] * 3
        assert [one async for one in client.read("orders")] == []
        await client.send_soon("orders", b"yes")  # it is sent: what fails behind it is logged
        await client.flush()
        with pytest.raises(LookupError):
            await client.send("orders", b"yes")
        assert len([one async for one in client.read("orders")]) == 2  # both are stored
    assert "a send middleware failed after the send of a message to orders" in caplog.text


@pytest.mark.parametrize("first", [True, False])
async def test_a_message_whose_middleware_fails_keeps_no_other_of_many_back(
    real: InProcessBroker, first: bool
) -> None:
    left: list[object] = []
    given = [ternmq.Message(b"no"), b"yes"] if first else [b"yes", ternmq.Message(b"no")]
    async with ternmq.connect(real.url) as client:

        @client.send_middleware
        def refuses(outbound: ternmq.Outbound) -> Iterator[None]:
            if outbound.message.body == b"no":
                raise RuntimeError("not this one")
            yield
            left.append(outbound.receipt)

        outcomes = await client.send_many("orders", given, return_errors=True)
        bad = 0 if first else 1
        assert isinstance(outcomes[bad], RuntimeError)
        assert left == [outcomes[1 - bad]]
        with pytest.raises(ternmq.PartialSendError) as caught:
            await client.send_many("orders", given)
        (failure,) = caught.value.failures
        assert (failure.row, failure.message) == (bad, given[bad])
        assert caught.value.receipts[bad] is None
        assert [one.body async for one in client.read("orders")] == [b"yes"] * 2


async def test_an_error_of_a_middleware_behind_a_handler_has_the_message_tried_again(
    real: InProcessBroker,
) -> None:
    attempts: list[int] = []
    client = ternmq.connect(real.url)

    @client.handler_middleware
    async def fails_behind(delivery: ternmq.Delivery) -> AsyncIterator[None]:
        yield
        if delivery.attempt == 1:
            raise LookupError("behind it")

    @client.handler("orders", group="g", retry=ternmq.RetryPolicy(first=0.05))
    async def handle(body: bytes, delivery: ternmq.Delivery) -> None:
        attempts.append(delivery.attempt)
        if len(attempts) == 2:
            client.stop()

    await client.send("orders", b"x")
    async with asyncio.timeout(30):
        await client.run()
    assert attempts == [1, 2]


def swallowed(whose: str) -> AbstractContextManager[object]:
    said = f"a send middleware swallowed the error of {whose}"
    return pytest.raises(ternmq.InvalidRequest, match=said)


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_middleware_that_swallows_the_error_of_another_leaves_no_send_without_outcome(
    real: InProcessBroker, blocking: bool
) -> None:
    """Nothing was sent, and whoever sends is told so, in every way to send."""

    def swallows(outbound: ternmq.Outbound) -> Iterator[None]:
        with suppress(RuntimeError):
            yield

    def refuses(outbound: ternmq.Outbound) -> Iterator[None]:
        if outbound.message.body == b"no":
            raise RuntimeError("not this one")
        yield

    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders")
        if blocking:
            with ternmq.sync.connect(real.url) as other:
                other.send_middleware(swallows)
                other.send_middleware(refuses)
                with swallowed("another one"):
                    await asyncio.to_thread(other.send, "orders", b"no")
                with pytest.raises(ternmq.PartialSendError, match="swallowed the error of another"):
                    await asyncio.to_thread(other.send_many, "orders", [b"no"])
                with swallowed("another one"):
                    other.send_soon("orders", b"no").result(30)
                with swallowed("another one"):
                    await asyncio.to_thread(other.send_oneway, "orders", b"no")
        else:
            client.send_middleware(swallows)
            client.send_middleware(refuses)
            with swallowed("another one"):
                await client.send("orders", b"no")
            with pytest.raises(ternmq.PartialSendError, match="swallowed the error of another"):
                await client.send_many("orders", [b"no"])
            with swallowed("another one"):
                client.send_soon("orders", b"no")
            with swallowed("another one"):
                client.send_oneway("orders", b"no")
        assert [one async for one in client.read("orders")] == []
        await client.send("orders", b"yes")
        assert [one.body async for one in client.read("orders")] == [b"yes"]


async def test_a_middleware_that_swallows_the_error_of_a_send(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:

        @client.send_middleware
        def swallows(outbound: ternmq.Outbound) -> Iterator[None]:
            with suppress(ternmq.InvalidName):
                yield

        with swallowed("a send"):
            client.send_soon("not a name", b"x")
        with pytest.raises(ternmq.InvalidName):  # here it is at hand: the error itself is raised
            await client.send("not a name", b"x")


# ---------------------------------------------------------------------------------------- lifespan


async def test_a_lifespan_begins_before_the_handlers_and_ends_behind_the_last(
    real: InProcessBroker,
) -> None:
    client = ternmq.connect(real.url)
    seen: list[str] = []

    @client.lifespan
    async def pool(of: ternmq.Client) -> AsyncIterator[None]:
        assert of is client
        seen.append("open")
        yield
        await of.send("done", b"x")  # the client still sends
        seen.append("close")

    @client.lifespan
    @contextmanager
    def second() -> Iterator[None]:
        seen.append("second")
        yield
        seen.append("second ends")

    @client.handler("orders", group="g")
    async def handle(body: bytes) -> None:
        seen.append("handle")
        client.stop()
        await asyncio.sleep(0)
        seen.append("handled")

    await handled(client, b"x", while_it_runs=lambda: False)
    assert seen == ["open", "second", "handle", "handled", "second ends", "close"]


async def test_a_lifespan_of_the_blocking_client_runs_where_run_is_called(
    real: InProcessBroker,
) -> None:
    client = ternmq.sync.connect(real.url)
    seen: list[object] = []

    @client.lifespan
    def pool(of: ternmq.sync.Client) -> Iterator[None]:
        seen.append(threading.get_ident())
        of.send("orders", b"from the lifespan")
        yield
        of.send("orders", b"at the end")
        seen.append("closed")

    @client.lifespan
    async def awaited() -> AsyncIterator[None]:
        seen.append("awaited")
        yield

    @client.handler("orders", group="g")
    def handle(body: bytes) -> None:
        seen.append(body)
        client.stop()

    def run() -> int:
        client.run()
        return threading.get_ident()

    ident = await asyncio.to_thread(run)
    assert seen == [ident, "awaited", b"from the lifespan", "closed"]
    async with ternmq.connect(real.url) as looking:
        assert len([one async for one in looking.read("orders")]) == 2


async def test_an_error_of_a_lifespan_is_that_of_the_run(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)

    @client.lifespan
    async def broken() -> AsyncIterator[None]:
        if client.stats().sends == 0:
            raise RuntimeError("no pool")
        yield

    @client.handler("orders", group="g")
    async def handle(body: bytes) -> None: ...

    with pytest.raises(RuntimeError, match="no pool"):
        await client.run()
