"""Orderly sessions on SQLite, with a broker in this process."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import ternmq
import ternmq.sync
from ternmq.model.errors import DatabaseNotPrepared, InvalidHandler, InvalidRequest
from ternmq.reliable import Outbox, SequenceStep, Steps, sequence
from ternmq.reliable.database.prepare import prepare
from ternmq.reliable.libraries.alchemy import AlchemyDatabase, Run
from ternmq.reliable.steps import course, operating
from ternmq.reliable.steps.course import State
from ternmq.reliable.steps.table import Consumer, SequenceTable
from ternmq.testing import InProcessBroker, broker
from tests.black_box.process import wait_until

TOPIC = ternmq.Topic("transfers", ordered=True)
BANK = Consumer("transfers", "bank")
DONE = sa.text("INSERT INTO done VALUES (:session, :number, :what)")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    made = sa.create_engine(f"sqlite:///{tmp_path}/bank.db")
    with made.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE done (session TEXT, number INTEGER, what TEXT)")
    yield made
    made.dispose()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "FIRST_BACKOFF_MS", 10)


def write(session: Session | sa.Connection, step: SequenceStep, what: str = "do") -> None:
    """Note a step in the transaction of its function."""
    values = {"session": step.session, "number": step.number, "what": what}
    session.execute(DONE, values)


def done(engine: sa.Engine, session: str = "a") -> list[tuple[int, str]]:
    """Return the steps of a session that were noted, in order."""
    statement = sa.text("SELECT number, what FROM done WHERE session = :session ORDER BY rowid")
    with engine.connect() as connection:
        return [(row[0], row[1]) for row in connection.execute(statement, {"session": session})]


def found(engine: sa.Engine, session: str = "a") -> operating.Session | None:
    """Return a session as an operator sees it."""
    database = AlchemyDatabase(engine)
    with database.reading() as work:
        one = operating.read(SequenceTable(database.dialect), work, BANK, session)
    database.close()
    return one


def state(engine: sa.Engine, session: str = "a") -> State | None:
    one = found(engine, session)
    return None if one is None else one.standing.state


def wait_for(engine: sa.Engine, wanted: State, session: str = "a") -> operating.Session:
    """Wait until a session has a state, and return it."""
    wait_until(lambda: state(engine, session) is wanted, f"{session} is {wanted.name}")
    one = found(engine, session)
    assert one is not None
    return one


def decide(engine: sa.Engine, decision: operating.Decision, session: str = "a") -> object:
    database = AlchemyDatabase(engine)
    with database.writing(durable=True) as work:
        told = operating.decide(SequenceTable(database.dialect), work, BANK, session, decision)
    database.close()
    return told


@contextmanager
def running(client: ternmq.sync.Client) -> Iterator[None]:
    """Run the handlers of a client in a thread."""
    thread = threading.Thread(target=client.run, kwargs={"signals": False})
    thread.start()
    try:
        yield
    finally:
        client.stop()
        thread.join()


def send(url: str, number: int, size: int, body: bytes = b"", **more: Any) -> None:
    """Send an item by hand, as another sender may."""
    session = more.pop("session", "a")
    headers = {"ternmq-session": session, "ternmq-number": str(number), "ternmq-size": str(size)}
    with ternmq.sync.connect(url) as client:
        client.declare(TOPIC)
        client.send(
            TOPIC, body or f"step {number}".encode(), ordering_key=session,
            headers=headers | more.pop("headers", {}), **more,
        )  # fmt: skip


Make = Callable[..., Steps]


@pytest.fixture
def make(real: InProcessBroker, engine: sa.Engine) -> Iterator[Make]:
    """Make consumers with clients of their own that run; all are closed at the end."""
    ended: list[Callable[[], object]] = []

    def make_one(
        step: Callable[..., object],
        undo: Callable[..., object] | None = None,
        database: object = None,
        outbox: bool = False,
        **options: Any,
    ) -> Steps:
        client = ternmq.sync.connect(real.url)
        if outbox:
            ended.append(Outbox(client, engine).close)
        made = Steps(client, "transfers", group="bank", database=database or engine, **options)
        made.prepare()
        made.step(step)
        if undo is not None:
            made.undo(undo)
        context = running(client)
        context.__enter__()
        ended.append(lambda: context.__exit__(None, None, None))
        return made

    yield make_one
    for end in reversed(ended):
        end()


def rejected(client: ternmq.sync.Client) -> str:
    """Wait for a dead letter, and return its reason."""
    dead: list[ternmq.FailedMessage] = []

    def is_there() -> bool:
        with suppress(ternmq.UnknownGroup):  # the consumer begins
            dead[:] = client.deadletters.browse("transfers", "bank")
        return bool(dead)

    wait_until(is_there, "it is rejected")
    return dead[0].failures[-1].reason


def moves(step: SequenceStep, session: Session) -> None:
    write(session, step)


# -- items ----------------------------------------------------------------------------------------


def test_items_in_any_order_are_done_in_order_each_once(real, engine, make) -> None:
    make(moves, wait=0.1)
    for number in (3, 1, 2, 3, 1):
        send(real.url, number, 3)
    wait_for(engine, State.DONE)
    assert done(engine) == [(1, "do"), (2, "do"), (3, "do")]


def test_a_step_knows_what_was_sent(real, engine, make) -> None:
    seen: list[SequenceStep] = []

    def step(step: SequenceStep, connection: sa.Connection) -> None:
        seen.append(step)
        write(connection, step)

    make(step)
    with ternmq.sync.connect(real.url) as client, sequence(client, TOPIC, id="a") as steps:
        assert steps.add({"debit": 5}, key="k-1", tag="paid", headers={"by": "ada"}) == 1
        assert steps.add("text") == 2
        assert steps.receipts == []
    assert [one.application_id for one in steps.receipts] == ["a.1", "a.2"]
    wait_for(engine, State.DONE)
    first, second = seen
    assert (first.session, first.number, first.size, first.attempt) == ("a", 1, 2, 1)
    assert (first.id, first.key, first.tag, first.value) == ("a.1", "k-1", "paid", {"debit": 5})
    assert first.headers["by"] == "ada"
    assert first.decode(dict[str, int]) == {"debit": 5}
    assert (second.value, second.content_type) == ("text", "text/plain")


@pytest.mark.parametrize(
    ("number", "size", "body", "headers", "reason"),
    [
        (1, 4, b"", {}, "session a: the session has 3 steps, and this message says 4"),
        (4, 3, b"", {}, "session a: number 4 is outside of 1 to 3"),
        (0, 3, b"", {}, "session a: number 0 is outside of 1 to 3"),
        (2, 3, b"another", {}, "session a: step 2 has come before with another body"),
        (1, 3, b"", {"ternmq-number": "one"}, "header ternmq-number is a whole number, not 'one'"),
        (1, 3, b"", {"ternmq-session": ""}, "header ternmq-session has 1 to 120 bytes"),
    ],
)  # fmt: skip
def test_wrong_input_is_rejected_with_its_reason_and_harms_no_session(
    real, engine, make, number, size, body, headers, reason
) -> None:
    make(moves, wait=0.1)
    send(real.url, 2, 3)
    send(real.url, number, size, body, headers=headers)
    with ternmq.sync.connect(real.url) as client:
        assert rejected(client).startswith(reason)
    send(real.url, 3, 3)
    send(real.url, 1, 3)
    wait_for(engine, State.DONE)
    assert done(engine) == [(1, "do"), (2, "do"), (3, "do")]


def test_a_message_of_no_session_is_rejected(real, make) -> None:
    make(moves)
    with ternmq.sync.connect(real.url) as client:
        client.send("transfers", b"x", ordering_key="a")
        reason = rejected(client)
    assert reason == "the message has no header ternmq-session: it is of no orderly session"


def test_missing_items_are_told_and_it_goes_on_when_they_come(
    real, engine, make, caplog: pytest.LogCaptureFixture
) -> None:
    make(moves, wait=0.05, give_up=0.2)
    send(real.url, 2, 4)
    incomplete = wait_for(engine, State.INCOMPLETE)
    assert incomplete.missing == [1, 3, 4]
    assert done(engine) == []
    wait_until(lambda: "these have not come: 1, 3, 4" in caplog.text, "it is logged")
    send(real.url, 4, 4)
    wait_until(lambda: (found(engine) or incomplete).standing.stored == 2, "it came")
    send(real.url, 1, 4)
    send(real.url, 3, 4)
    wait_for(engine, State.DONE)
    assert done(engine) == [(number, "do") for number in (1, 2, 3, 4)]


def test_a_lost_message_to_itself_is_found(real, engine, make) -> None:
    steps = make(moves, wait=3600, every=0.2)
    send(real.url, 1, 2)
    wait_until(lambda: state(engine) is State.COLLECTING, "the first one is stored")
    steps.close()  # nobody sends rows of the outbox, or does steps
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE ternmq_sequence SET state = 1, stored = 2, turn = 7, next_ms = 0"
        )
        connection.exec_driver_sql(
            "INSERT INTO ternmq_sequence_item SELECT consumer, session, 2, id, message_key, tag, "
            "content_type, headers, body FROM ternmq_sequence_item"
        )
        connection.exec_driver_sql("DELETE FROM ternmq_outbox")
    steps.start()
    wait_for(engine, State.DONE)
    assert done(engine) == [(1, "do"), (2, "do")]


def test_what_waits_for_the_broker_is_not_lost(real, engine, make) -> None:
    steps = make(moves, wait=3600, every=0.1)
    send(real.url, 1, 2)
    wait_until(lambda: state(engine) is State.COLLECTING, "the first one is stored")
    steps.close()
    count = "SELECT count(*) FROM ternmq_outbox"
    store = steps._store
    for waiting, renewed in ((0, []), (2, ["a"])):
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM ternmq_outbox")
            connection.exec_driver_sql("UPDATE ternmq_sequence SET next_ms = 0")
            standing = store.table.find(Run(connection), BANK, "a")
            assert standing is not None
            store.table.wake(Run(connection), BANK, "a", standing)
            connection.exec_driver_sql(
                f"UPDATE ternmq_outbox SET written_ms = 1, state = {waiting}"
            )
        assert store.renew(1_000) == renewed  # a row that has failed is not on its way
        with engine.connect() as connection:
            assert connection.exec_driver_sql(count).scalar_one() == 1 + len(renewed)


def test_sessions_that_ended_long_ago_are_deleted(real, engine, make) -> None:
    make(moves, every=0.1, keep=0.3)
    send(real.url, 1, 1)
    wait_until(lambda: done(engine) == [(1, "do")], "it is done")
    wait_until(lambda: found(engine) is None, "it is deleted")
    with engine.connect() as connection:
        count = connection.exec_driver_sql("SELECT count(*) FROM ternmq_sequence_item").scalar_one()
    assert count == 0


# -- steps ----------------------------------------------------------------------------------------


def test_what_a_step_sends_belongs_to_its_transaction(real, engine, make, quick) -> None:
    """Also through another client of the process, if it has an outbox on the database."""
    teller = ternmq.sync.connect(real.url)
    outbox = Outbox(teller, engine)
    failed: list[int] = []

    def step(step: SequenceStep, session: Session) -> None:
        write(session, step)
        teller.send("told", f"{step.number}".encode())
        if step.number == 2 and not failed:
            failed.append(2)
            raise ValueError("once")

    make(step)
    for number in (1, 2, 3):
        send(real.url, number, 3)
    wait_for(engine, State.DONE)
    assert done(engine) == [(1, "do"), (2, "do"), (3, "do")]
    outbox.flush()
    assert sorted([one.body for one in teller.read("told")]) == [b"1", b"2", b"3"]
    assert failed == [2]
    outbox.close()
    teller.close()


def test_a_failing_step_is_retried_then_stopped_and_resumed(real, engine, make, quick) -> None:
    attempts: list[int] = []
    broken = threading.Event()

    def step(step: SequenceStep, session: Session) -> None:
        attempts.append(step.attempt)
        write(session, step)
        if step.number == 2 and not broken.is_set():
            raise ValueError("no money")

    make(step, attempts=3)
    for number in (1, 2, 3):
        send(real.url, number, 3)
    stopped = wait_for(engine, State.STOPPED)
    assert attempts == [1, 1, 2, 3]
    assert stopped.standing.error == "ValueError: no money"
    assert done(engine) == [(1, "do")]
    broken.set()
    decide(engine, "resume")
    wait_for(engine, State.DONE)
    assert done(engine) == [(1, "do"), (2, "do"), (3, "do")]


def fails_at_two(step: SequenceStep, session: Session) -> None:
    write(session, step)
    if step.number == 2:
        raise ValueError("no money")


@pytest.mark.parametrize("decision", ["skip", "cancel", "undo"])
def test_stop_waits_for_an_operator(real, engine, make, decision) -> None:
    make(fails_at_two, undo=undoes, on_failure="stop")
    for number in (1, 2, 3):
        send(real.url, number, 3)
    assert wait_for(engine, State.STOPPED).standing.tries == 1
    decide(engine, decision)
    if decision == "skip":
        wait_for(engine, State.DONE)
        assert done(engine) == [(1, "do"), (3, "do")]
    elif decision == "cancel":
        wait_for(engine, State.CANCELLED)
        assert done(engine) == [(1, "do")]
    else:
        wait_for(engine, State.UNDONE)
        assert done(engine) == [(1, "do"), (1, "undo")]


def undoes(step: SequenceStep, session: Session) -> None:
    write(session, step, "undo")


def test_compensate_undoes_from_the_last_step(real, engine, make) -> None:
    def step(step: SequenceStep, session: Session) -> None:
        write(session, step)
        if step.number == 3:
            raise ValueError("no money")

    make(step, undo=undoes, on_failure="compensate")
    for number in (1, 2, 3, 4):
        send(real.url, number, 4)
    undone = wait_for(engine, State.UNDONE)
    assert done(engine) == [(1, "do"), (2, "do"), (2, "undo"), (1, "undo")]
    assert undone.standing.error == "ValueError: no money"


def test_an_undoing_that_fails_is_retried_then_stopped(real, engine, make, quick) -> None:
    mended = threading.Event()
    undone: list[int] = []

    def undo(step: SequenceStep, session: Session) -> None:
        undone.append(step.attempt)
        if not mended.is_set():
            raise ValueError("not yet")
        write(session, step, "undo")

    make(fails_at_two, undo=undo, on_failure="compensate", attempts=2)
    send(real.url, 1, 2)
    send(real.url, 2, 2)
    wait_for(engine, State.UNDO_STOPPED)
    assert undone == [1, 2]
    mended.set()
    decide(engine, "resume")
    wait_for(engine, State.UNDONE)
    assert done(engine) == [(1, "do"), (1, "undo")]


@pytest.mark.parametrize("on_failure", ["retry", "stop", "compensate"])
def test_a_function_asks_for_another_time_or_rejects(real, engine, make, on_failure) -> None:
    attempts: list[int] = []

    def step(step: SequenceStep) -> None:
        attempts.append(step.attempt)
        if step.attempt == 1:
            raise ternmq.Retry("busy", after=0.01)
        raise ternmq.Reject("never")

    make(step, undo=undoes, on_failure=on_failure)
    send(real.url, 1, 1)
    wanted = State.UNDONE if on_failure == "compensate" else State.STOPPED
    assert wait_for(engine, wanted).standing.error == "never"
    assert attempts == [1, 2]


def test_a_function_that_ends_its_transaction_is_told(
    real, engine, make, caplog: pytest.LogCaptureFixture
) -> None:
    def step(step: SequenceStep, session: Session) -> None:
        write(session, step)
        session.connection().commit()

    make(step)
    send(real.url, 1, 1)
    wait_for(engine, State.DONE)  # the counter was committed with it
    wait_until(lambda: "committed or rolled back its transaction" in caplog.text, "it is logged")
    assert done(engine) == [(1, "do")]


@pytest.mark.parametrize("then", [False, True], ids=["at its end", "before another statement"])
def test_a_step_whose_transaction_is_gone_is_a_failed_attempt(
    real, engine, make, quick, then, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []

    def step(step: SequenceStep, session: Session) -> None:
        attempts.append(step.attempt)
        write(session, step)
        session.connection().exec_driver_sql("ROLLBACK")
        if then:
            write(session, step)

    steps = make(step, attempts=3)
    send(real.url, 1, 1)
    stopped = wait_for(engine, State.STOPPED)
    assert stopped.standing.error is not None
    assert "committed or rolled back" in stopped.standing.error
    assert attempts == [1, 2, 3]
    assert (done(engine), steps.stats().done, steps.stats().failures) == ([], 0, 3)
    assert "attempt 2 in" in caplog.text


def test_a_database_that_forgets_a_commit_makes_a_failed_attempt(
    real, engine, make, quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a failover to a standby that was behind."""
    forgets = [True]
    commit = sa.Connection.commit

    def forgetful(self: sa.Connection) -> None:
        if forgets and self.info.pop("of a step", False):
            forgets.clear()
            self.rollback()
        else:
            commit(self)

    monkeypatch.setattr(sa.Connection, "commit", forgetful)
    attempts: list[int] = []

    def step(step: SequenceStep, session: Session) -> None:
        attempts.append(step.attempt)
        session.connection().info["of a step"] = True
        write(session, step)

    make(step)
    send(real.url, 1, 1)
    wait_for(engine, State.DONE)
    assert attempts == [1, 2]
    assert done(engine) == [(1, "do")]


def test_an_error_that_is_no_exception_is_a_failed_attempt(real, engine, make) -> None:
    def step(step: SequenceStep, session: Session) -> None:
        write(session, step)
        raise SystemExit(2)

    steps = make(step, on_failure="stop")
    send(real.url, 1, 1)
    assert wait_for(engine, State.STOPPED).standing.error == (
        "RuntimeError: the function of the step raised SystemExit: 2"
    )
    assert (done(engine), steps.stats().failures) == ([], 1)


DIES = """
import os
import ternmq.sync
from ternmq.reliable import SequenceStep, Steps

client = ternmq.sync.connect({url!r})
steps = Steps(
    client, "transfers", group="bank", database={database!r}, on_failure={on_failure!r}, attempts=3
)

@steps.step
def step(step: SequenceStep) -> None:
    if step.number == 2:
        with open({notes!r}, "a") as file:
            file.write(f"{{step.attempt}} ")
        os._exit(9)

@steps.undo
def undo(step: SequenceStep) -> None: ...

client.run()
"""


@pytest.mark.parametrize(
    ("on_failure", "wanted"),
    [("stop", State.STOPPED), ("compensate", State.UNDONE)],
)
def test_a_step_that_ends_its_process_is_counted(
    real, engine, tmp_path, on_failure, wanted
) -> None:
    prepare(AlchemyDatabase(engine))
    notes = tmp_path / "attempts"
    program = DIES.format(
        url=real.url, database=f"sqlite:///{tmp_path}/bank.db", on_failure=on_failure,
        notes=f"{notes}",
    )  # fmt: skip
    send(real.url, 1, 2)
    send(real.url, 2, 2)
    for _ in range(3):
        ran = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
        assert ran.returncode == 9
    last = subprocess.Popen([sys.executable, "-c", program])
    try:
        ended = wait_for(engine, wanted).standing
    finally:
        last.kill()
        last.wait()
    assert notes.read_text().split() == ["1", "2", "3"]
    assert ended.error is not None
    assert "the consumer was gone" in ended.error


def test_a_bare_connection_is_given(real, engine, make) -> None:
    def step(step: SequenceStep, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO done VALUES (?, ?, 'do')", (step.session, step.number))

    make(step)
    send(real.url, 1, 1)
    wait_for(engine, State.DONE)
    assert done(engine) == [(1, "do")]


def test_with_asyncio(real, engine, tmp_path) -> None:
    async def main() -> None:
        awaited = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/bank.db")
        client = ternmq.connect(real.url)
        transfers = Steps(client, TOPIC, group="bank", database=awaited, on_failure="compensate")
        await asyncio.to_thread(transfers.prepare)

        @transfers.step
        async def step(step: SequenceStep, session: AsyncSession) -> None:
            await session.execute(DONE, {"session": step.session, "number": step.number,
                                         "what": "do"})  # fmt: skip
            await client.send("told", step.body)
            if step.value == "fails":
                raise ValueError("no money")

        @transfers.undo
        async def undo(step: SequenceStep, connection: AsyncConnection) -> None:
            await connection.execute(DONE, {"session": step.session, "number": step.number,
                                            "what": "undo"})  # fmt: skip

        run = asyncio.create_task(client.run(signals=False))
        sender = ternmq.connect(real.url)
        outbox = Outbox(sender, awaited)
        async with AsyncSession(awaited) as session, session.begin():
            async with sequence(sender, TOPIC, id="a", within=session) as steps:
                steps.add("one")
                steps.add("two")
            async with sequence(sender, TOPIC, id="b", within=session) as steps:
                steps.add("one")
                steps.add("fails")
        await asyncio.to_thread(wait_for, engine, State.DONE)
        await asyncio.to_thread(wait_for, engine, State.UNDONE, "b")
        client.stop()
        await run
        await asyncio.to_thread(outbox.close)
        told = [one.body async for one in sender.read("told")]
        assert sorted(told) == [b"one", b"one", b"two"]
        await sender.close()
        await awaited.dispose()

    asyncio.run(main())
    assert done(engine) == [(1, "do"), (2, "do")]
    assert done(engine, "b") == [(1, "do"), (1, "undo")]


def test_both_topics_are_declared(engine) -> None:
    """So that `ternmq apply` and ``run`` make them, also where a first use makes no topic."""
    with (
        broker(manual=False, settings={"create_topics": False}) as strict,
        ternmq.sync.connect(strict.url) as client,
    ):
        Steps(client, "transfers", group="bank", database=engine).step(moves)
        client.apply()
        there = {one.spec.name for one in client.admin.topics()}
        assert there >= {"transfers", "transfers.bank.steps"}
        assert client.apply() == []


def test_a_database_that_was_not_prepared_ends_the_run(real, engine) -> None:
    with ternmq.sync.connect(real.url) as client:
        Steps(client, "transfers", group="bank", database=engine).step(moves)
        with pytest.raises(DatabaseNotPrepared, match="sequences"):
            client.run(signals=False)


# -- what cannot be -------------------------------------------------------------------------------


def test_what_is_refused_before_it_runs(real, engine) -> None:
    with ternmq.sync.connect(real.url) as client:

        def made(**options: Any) -> Steps:
            return Steps(client, "transfers", **({"group": "g", "database": engine} | options))

        for wrong, said in (
            ({"on_failure": "ignore"}, "on_failure is one of"),
            ({"database": "sqlite://"}, "in memory"),
            ({"attempts": 0}, "attempts"),
            ({"wait": 0}, "wait"),
        ):
            with pytest.raises(InvalidRequest, match=said):
                made(**wrong)
        with pytest.raises(InvalidRequest, match="ordered"):
            Steps(client, ternmq.Topic("x"), group="g", database=engine)
        with pytest.raises(InvalidHandler, match="no function"):
            made().start()
        lacking = made(on_failure="compensate", group="lacking")
        lacking.step(moves)
        with pytest.raises(InvalidHandler, match="undoes steps"):
            lacking.start()
        with pytest.raises(InvalidHandler, match="already"):
            lacking.step(moves)

        def nothing() -> None: ...

        def session_first(session: Session) -> None: ...

        def other(step: SequenceStep, order: int) -> None: ...

        def yields(step: SequenceStep) -> Iterator[None]:
            yield

        async def awaited(step: SequenceStep, session: AsyncSession) -> None: ...

        for function, said in (
            (nothing, "must take the step"),
            (session_first, "is the step"),
            (other, "'order' gets no value"),
            (yields, "yield"),
            (awaited, "would block the loop"),
        ):
            with pytest.raises(InvalidHandler, match=said):
                made().step(function)


# -- senders --------------------------------------------------------------------------------------


def test_a_block_sends_all_or_nothing(real, engine) -> None:
    with ternmq.sync.connect(real.url) as client:
        client.declare(TOPIC)
        outbox = Outbox(client, engine, compensate=False)
        outbox.prepare()
        with suppress(ZeroDivisionError), sequence(client, TOPIC) as steps:
            steps.add(b"x")
            raise ZeroDivisionError
        with sequence(client, TOPIC) as steps:
            pass
        assert steps.receipts == []
        with Session(engine) as session, session.begin():
            with sequence(client, TOPIC, within=session, id="a") as steps:
                for number in range(3):
                    steps.add({"number": number})
            rows = outbox.rows()
            assert rows == []  # others do not see them
        rows = outbox.rows()
        assert [(one.ordering_key, one.id, one.key) for one in rows] == [
            ("a", f"a.{number}", "") for number in (1, 2, 3)
        ]
        assert [dict(one.headers) for one in rows] == [
            {"ternmq-session": "a", "ternmq-number": str(number), "ternmq-size": "3"}
            for number in (1, 2, 3)
        ]
        for _ in range(2):  # the second time nothing is stored
            with sequence(client, TOPIC, id="b") as steps:
                steps.add(b"1")
                steps.add(b"2")
        assert [one.duplicate for one in steps.receipts] == [True, True]
        assert [one.body for one in client.read("transfers")] == [b"1", b"2"]
        outbox.close()


def test_a_block_on_a_topic_that_keeps_no_order(real) -> None:
    plain = ternmq.Topic("plain", ordered=False)
    with ternmq.sync.connect(real.url) as client:
        for topic in (plain, ternmq.Topic("unsaid")):
            with pytest.raises(InvalidRequest, match="ordered=True"):
                sequence(client, topic)


def test_what_a_block_refuses(real) -> None:
    with ternmq.sync.connect(real.url) as client:
        block = sequence(client, "transfers")
        with pytest.raises(InvalidRequest, match="has not begun"):
            block.add(b"x")
        with block:
            with pytest.raises(InvalidRequest, match="ternmq-size is set by the session"):
                block.add(b"x", headers={"ternmq-size": "7"})
            with pytest.raises(ternmq.EncodeError, match="Message"):
                block.add(ternmq.Message(b"x"))
            assert len(block) == 0
        with pytest.raises(InvalidRequest, match="has ended"):
            block.add(b"x")
        with pytest.raises(InvalidRequest, match="has begun before"), block:
            pass
        with pytest.raises(InvalidRequest, match="id has 121 bytes"):
            sequence(client, "transfers", id="x" * 121)
    with pytest.raises(InvalidRequest, match="a client"):
        sequence(object(), "transfers")  # type: ignore[call-overload]


def test_the_log_says_who_decides(real, engine, make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ternmq.reliable")
    make(fails_at_two, on_failure="stop")
    send(real.url, 1, 2)
    send(real.url, 2, 2)
    wait_for(engine, State.STOPPED)
    wait_until(lambda: "`ternmq sequence resume`" in caplog.text, "it is logged")
    assert "step 2 of 2 failed: ValueError: no money; stopped" in caplog.text
