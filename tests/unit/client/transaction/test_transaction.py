"""A transaction's requests, as a broker gets them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator

import pytest

import ternmq
from ternmq.client.transaction.decision import Decision
from ternmq.model.errors import Busy, TernMQError, TransactionDecided
from ternmq.record.batch.batch import Batch
from ternmq.wire import bodies, control, frames
from ternmq.wire.commands import Command
from ternmq.wire.session import Request
from tests.asynchronous import until
from tests.unit.client.fake import FakeBroker, Told

PREPARE, DECIDE = Command.TRANSACTION_PREPARE, Command.TRANSACTION_DECIDE


class Desk:
    """Answers the commands of transactions, and notes what was asked."""

    def __init__(self, broker: FakeBroker) -> None:
        self.prepares: list[bytes] = []
        self.decisions: list[control.TransactionDecide] = []
        self.answer: Callable[[Command], Told | None] = lambda command: None
        self.silent: set[Command] = set()
        broker.on[PREPARE] = self.prepare
        broker.on[DECIDE] = self.decide

    def prepare(self, request: Request) -> Told:
        self.prepares.append(request.body)
        told = self.answer(PREPARE)
        if told is not None or PREPARE in self.silent:
            return told
        asked = bodies.unpack_transaction_prepare(request.body)
        rows = Batch(asked.batch).count if asked.batch else 0
        return bodies.pack_transaction_prepared(0x1F3, 1, 0, rows, duplicate=False)

    def decide(self, request: Request) -> Told:
        self.decisions.append(control.decode(request.body, control.TransactionDecide))
        told = self.answer(DECIDE)
        if told is not None or DECIDE in self.silent:
            return told
        return control.encode(control.TransactionDone(rows=1, transaction=0x1F3))

    @property
    def asked(self) -> list[bodies.TransactionPrepare]:
        return [bodies.unpack_transaction_prepare(one) for one in self.prepares]


def question(broker: FakeBroker, number: int) -> None:
    """Ask the client about a transaction."""
    asked = control.TransactionCheck(transaction=number, group="g")
    push = frames.pack(Command.TRANSACTION_CHECK, frames.PUSH, 0, control.encode(asked))
    broker.connections[-1].write(push)


async def test_the_first_request_opens_it_and_the_others_name_it() -> None:
    async with FakeBroker(queues=3) as broker, ternmq.connect(broker.url) as client:
        desk = Desk(broker)
        async with client.transaction("g", query_id="q", check_after=90) as tx:
            assert (tx.id, tx.group, tx.query_id) == ("", "g", "q")
            messages = [ternmq.Message(b"x", key=f"k{number}") for number in range(20)]
            receipts = await tx.send_many("t", messages)
            await tx.send("t", b"y")
            assert tx.id == "t-1f3"
        numbers = [one.transaction for one in desk.asked]
        assert numbers == [0, *[0x1F3] * (len(numbers) - 1)]
        assert len(numbers) == 4  # a batch for each of three queues, and one more
        names = {(one.producer, one.counter, one.group, one.query_id) for one in desk.asked}
        assert {name[2:] for name in names} == {("g", "q")}
        assert len(names) == 1
        assert {one.check_after_us for one in desk.asked} == {90_000_000}
        ids = [one.id for one in receipts]
        assert len(set(ids)) == 20
        batches = [Batch(one.batch) for one in desk.asked]
        sent = {
            f"{one.producer_id:016x}:{one.first_sequence + row:x}"
            for one in batches
            for row in range(one.count)
        }
        assert set(ids) < sent
        (decision,) = desk.decisions
        assert (decision.transaction, decision.commit) == (0x1F3, True)


async def test_a_commit_under_way_is_not_contradicted_by_a_close() -> None:
    async with FakeBroker() as broker:
        desk = Desk(broker)
        client = await ternmq.connect(broker.url, timeout=1)
        desk.silent = {DECIDE}

        async def work() -> None:
            async with client.transaction("g") as tx:
                await tx.open()

        block = asyncio.create_task(work())
        await until(lambda: desk.decisions, "the commit is asked for")
        await client.close()
        with pytest.raises(ternmq.OutcomeUnknown):
            await block
        assert [one.commit for one in desk.decisions] == [True]


async def test_a_close_rolls_back_what_no_block_will() -> None:
    """Blocks that are open, roll backs without an answer, openings without an answer."""
    async with FakeBroker() as broker:
        desk = Desk(broker)
        client = await ternmq.connect(broker.url, timeout=0.2)

        async def fails() -> None:
            async with client.transaction("g") as tx:
                await tx.open()
                raise ZeroDivisionError

        desk.silent = {DECIDE}
        with pytest.raises(ZeroDivisionError):
            await fails()
        desk.silent = {PREPARE, DECIDE}
        with pytest.raises(ternmq.ConnectionLost):
            await fails()
        desk.silent = set()
        left = client.transaction("g", on_error="check")
        opened = client.transaction("g")
        for tx in (left, opened):
            await tx.__aenter__()
            await tx.open()
        before = len(desk.decisions)
        await client.close()
        late = desk.decisions[before:]
        assert not any(one.commit for one in late)
        assert sorted(one.transaction or 0 for one in late) == [0, 0x1F3, 0x1F3]
        with pytest.raises(ternmq.ClientClosed, match="rolled back"):
            await opened.__aexit__(None, None, None)
        with pytest.raises(ternmq.ClientClosed):
            await left.__aexit__(None, None, None)


async def test_a_close_does_not_wait_for_a_broker_that_is_silent() -> None:
    async with FakeBroker() as broker:
        desk = Desk(broker)
        client = await ternmq.connect(broker.url, timeout=10)
        tx = client.transaction("g")
        await tx.__aenter__()
        await tx.open()
        desk.silent = {DECIDE}
        begin = asyncio.get_running_loop().time()
        await client.close(0.1)
        assert asyncio.get_running_loop().time() - begin < 5
        with pytest.raises(ternmq.ClientClosed):
            await tx.__aexit__(None, None, None)


async def test_two_transactions_have_two_names() -> None:
    async with FakeBroker() as broker, ternmq.connect(broker.url) as client:
        desk = Desk(broker)
        for _ in range(2):
            async with client.transaction("g") as tx:
                await tx.open()
        one, two = desk.asked
        assert one.producer == two.producer
        assert one.counter != two.counter


@pytest.mark.parametrize("step", ["open", "send", "more", "commit"])
async def test_after_a_lost_connection_the_same_bytes_are_sent(step: str) -> None:
    async with FakeBroker() as broker, ternmq.connect(broker.url) as client:
        desk = Desk(broker)
        command = DECIDE if step == "commit" else PREPARE
        lost = asyncio.Event()

        def cut_once(asked: Command) -> Told:
            due = step != "more" or len(desk.prepares) == 2
            if asked is command and not lost.is_set() and due:
                lost.set()
                broker.cut()
                desk.silent = {command}
            else:
                desk.silent = set()
            return None

        desk.answer = cut_once
        async with client.transaction("g") as tx:
            if step == "open":
                await tx.open()
            await tx.send("t", b"1")
            await tx.send("t", b"2")
        assert lost.is_set()
        assert desk.decisions[-1].commit
        if step == "commit":
            assert desk.decisions == [desk.decisions[0]] * 2
        else:
            again = {one for one in desk.prepares if desk.prepares.count(one) == 2}
            assert len(again) == 1
            assert len(desk.prepares) == len(set(desk.prepares)) + 1


async def test_a_refusal_leaves_it_open_and_what_is_not_known_does_not() -> None:
    async with FakeBroker() as broker, ternmq.connect(broker.url, timeout=0.3) as client:
        desk = Desk(broker)
        refusals: list[TernMQError] = []
        desk.answer = lambda command: refusals.pop() if refusals else None
        async with client.transaction("g") as tx:
            refusals.append(ternmq.NoChecker("nobody"))
            with pytest.raises(ternmq.NoChecker):
                await tx.send("t", b"1")
            await tx.send("t", b"2")
            refusals.append(ternmq.MessageTooLarge("too large"))
            with pytest.raises(ternmq.MessageTooLarge):
                await tx.send("t", b"3")
        assert [one.commit for one in desk.decisions] == [True]

        async with client.transaction("g") as tx:
            desk.silent = {PREPARE}
            with pytest.raises(ternmq.ConnectionLost):
                await tx.send("t", b"1")
            desk.silent = set()
            await tx.send("t", b"2")
            with pytest.raises(ternmq.TransactionFailed, match="ConnectionLost"):
                await tx.commit()
            await tx.rollback()
        assert [one.commit for one in desk.decisions] == [True, False]


async def test_an_opening_without_an_answer_is_rolled_back_by_its_name() -> None:
    async with FakeBroker() as broker, ternmq.connect(broker.url, timeout=0.3) as client:
        desk = Desk(broker)
        desk.silent = {PREPARE}
        tx = client.transaction("g")
        with pytest.raises(ternmq.ConnectionLost):
            async with tx:
                await tx.open()
        (decision,), (asked,) = desk.decisions, desk.asked
        assert (decision.transaction, decision.commit) == (None, False)
        assert (decision.producer, decision.counter) == (asked.producer, asked.counter)


@pytest.mark.parametrize("wraps", [False, True])
async def test_the_error_of_a_step_rolls_back_also_where_the_checker_decides(
    wraps: bool,
) -> None:
    """It lacks what the step was to do, which no checker knows."""
    async with FakeBroker() as broker, ternmq.connect(broker.url) as client:
        desk = Desk(broker)

        async def fails(step: str) -> None:
            async with client.transaction("g", on_error="check") as tx:
                await tx.send("t", b"1")
                try:
                    if step == "refused":
                        desk.answer = lambda command: (
                            ternmq.MessageTooLarge("x") if command is PREPARE else None
                        )
                        await tx.send("t", b"2")
                    elif step == "name":
                        await tx.send("a b", b"2")
                    elif step == "delivery":
                        await tx.ack(7)  # type: ignore[arg-type]
                    else:
                        int("x")
                except Exception as error:
                    if wraps:
                        raise RuntimeError("the work failed") from error
                    raise

        for step in ("refused", "name", "delivery"):
            desk.answer = lambda command: None
            with pytest.raises((RuntimeError, ternmq.TernMQError)):
                await fails(step)
        assert [one.commit for one in desk.decisions] == [False] * 3
        with pytest.raises((RuntimeError, ValueError)):
            await fails("of its own")
        assert len(desk.decisions) == 3  # this one is left to the checker


async def test_a_roll_back_without_an_answer_is_said_again_when_it_is_asked() -> None:
    async with FakeBroker() as broker:
        desk = Desk(broker)
        client = ternmq.connect(broker.url, timeout=0.2)

        @client.checker("g")
        async def check(tx: ternmq.PreparedTransaction) -> Decision:
            return Decision.COMMIT

        async with client:
            tx = client.transaction("g")
            async with tx:
                await tx.open()
                desk.silent = {DECIDE}
                with pytest.raises(ternmq.OutcomeUnknown) as caught:
                    await tx.rollback()
            assert caught.value.transaction_id == tx.id == "t-1f3"
            desk.silent = set()
            desk.decisions.clear()
            for number in (0x1F3, 0x1F4):
                question(broker, number)
            await until(lambda: len(desk.decisions) == 2)
            said = {one.transaction: one.commit for one in desk.decisions}
            assert said == {0x1F3: False, 0x1F4: True}


@pytest.mark.parametrize("error", [None, TransactionDecided("it is rolled back")])
async def test_a_roll_back_that_was_answered_is_forgotten(error: TernMQError | None) -> None:
    async with FakeBroker() as broker:
        desk = Desk(broker)
        client = ternmq.connect(broker.url, timeout=0.2)

        @client.checker("g")
        async def check(tx: ternmq.PreparedTransaction) -> Decision:
            return Decision.UNKNOWN

        async with client:
            tx = client.transaction("g")
            async with tx:
                await tx.open()
                desk.silent = {DECIDE}
                with pytest.raises(ternmq.OutcomeUnknown):
                    await tx.rollback()
            desk.silent = set()
            desk.decisions.clear()
            desk.answer = lambda command: error if command is DECIDE else None
            question(broker, 0x1F3)
            await until(lambda: len(desk.decisions) == 1)
            desk.answer = lambda command: None
            question(broker, 0x1F4)  # when it is answered, the answer before it was read
            await until(lambda: len(desk.decisions) == 2)
        said = [(one.transaction, one.commit) for one in desk.decisions]
        assert said == [(0x1F3, False), (0x1F4, None)]  # the close has nothing to roll back


async def test_the_checker_is_asked_about_one_whose_block_was_dropped() -> None:
    async with FakeBroker() as broker:
        desk = Desk(broker)
        numbers = iter((0x1F3, 0x1F4))
        broker.on[PREPARE] = lambda request: bodies.pack_transaction_prepared(
            next(numbers), 1, 0, 0, duplicate=False
        )
        client = ternmq.connect(broker.url)

        @client.checker("g")
        async def check(tx: ternmq.PreparedTransaction) -> Decision:
            return Decision.ROLLBACK

        async def dropped() -> str:
            tx = await client.transaction("g").__aenter__()
            return await tx.open()

        async with client, client.transaction("g") as kept:
            await kept.open()
            assert await dropped() == "t-1f4"
            gc.collect()
            for number in (0x1F3, 0x1F4):
                question(broker, number)
            await until(lambda: len(desk.decisions) == 2)
            said = {one.transaction: one.commit for one in desk.decisions}
            assert said == {0x1F3: None, 0x1F4: False}


async def test_one_that_did_nothing_is_not_known_to_the_broker() -> None:
    async with FakeBroker() as broker, ternmq.connect(broker.url) as client:
        desk = Desk(broker)
        async with client.transaction("g"):
            pass
        tx = client.transaction("g", on_error="check")
        with pytest.raises(ZeroDivisionError):
            async with tx:
                raise ZeroDivisionError
        assert desk.prepares == []
        assert desk.decisions == []


async def test_a_commit_that_is_refused_for_now_is_repeated() -> None:
    async with FakeBroker() as broker, ternmq.connect(broker.url) as client:
        desk = Desk(broker)
        left = [Busy("later"), Busy("later")]
        desk.answer = lambda command: left.pop() if command is DECIDE and left else None
        async with client.transaction("g") as tx:
            await tx.open()
        assert len(desk.decisions) == 3


async def test_a_cancelled_commit_has_an_unknown_outcome() -> None:
    async with FakeBroker() as broker, ternmq.connect(broker.url) as client:
        desk = Desk(broker)
        desk.silent = {DECIDE}
        tx = client.transaction("g")

        async def commits() -> None:
            async with tx:
                await tx.open()

        task = asyncio.create_task(commits())
        await until(lambda: bool(desk.decisions))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [one.commit for one in desk.decisions] == [True]  # it is not rolled back
        with pytest.raises(ternmq.TransactionNotOpen, match="not known yet"):
            await tx.rollback()


async def test_due_times_are_counted_from_the_call() -> None:
    async with FakeBroker() as broker, ternmq.connect(broker.url) as client:
        desk = Desk(broker)
        async with client.transaction("g") as tx:
            receipts = await tx.send_many("t", [ternmq.Message(b"1", deliver_after=60), b"2", b"3"])
        assert [one.due_at is not None for one in receipts] == [True, False, False]
        due = {tuple(Batch(one.batch).bodies()): one for one in desk.asked}
        assert set(due) == {(b"1",), (b"2", b"3")}


async def test_middlewares_of_sends_go_around_its_messages() -> None:
    async with FakeBroker() as broker, ternmq.connect(broker.url) as client:
        desk = Desk(broker)
        receipts: list[object] = []

        @client.send_middleware
        def mark(outbound: ternmq.Outbound) -> Iterator[None]:
            outbound.message.headers = {"by": "me"}
            yield
            receipts.append(outbound.receipt)

        async with client.transaction("g") as tx:
            receipt = await tx.send("t", b"1")
        (asked,) = desk.asked
        assert Batch(asked.batch).headers() == [{"by": "me"}]
        assert receipts == [receipt]


async def test_outcomes_that_are_asked_for() -> None:
    async with FakeBroker() as broker, ternmq.connect(broker.url) as client:
        states = {
            "undecided": Decision.UNKNOWN,
            "parked": Decision.UNKNOWN,
            "committed": Decision.COMMIT,
            "rolled-back": Decision.ROLLBACK,
            "of a newer broker": Decision.UNKNOWN,
        }
        for state, decision in states.items():
            told = control.encode(control.CheckedTransaction(transaction=5, state=state))
            broker.on[Command.TRANSACTION_SHOW] = lambda request, told=told: told  # type: ignore[misc]
            assert await client.transaction_outcome("t-5") is decision
