"""Rows of MISSION, orderly sessions: real processes, some of them killed, on three databases."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import ternmq
import ternmq.sync
from ternmq.reliable import Outbox, sequence
from ternmq.reliable.database.prepare import prepare
from ternmq.reliable.libraries.alchemy import AlchemyDatabase
from tests.black_box.process import BrokerProcess, wait_until
from tests.databases import KINDS, Servers, run, servers
from tests.fault.reliable.tools import LONG

__all__ = ["servers"]

TOPIC = ternmq.Topic("transfers", ordered=True)


@dataclass
class Bank:
    """A broker, a database, and consumers that may be killed."""

    broker: BrokerProcess
    url: str
    folder: Path
    stack: ExitStack
    consumers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def consume(self, **options: object) -> subprocess.Popen[bytes]:
        """Start a consumer."""
        log = self.stack.enter_context((self.folder / f"log-{len(self.consumers)}").open("wb"))
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.black_box.stepping", self.broker.url, self.url,
             str(self.folder), json.dumps(options)],
            stderr=log, stdin=subprocess.DEVNULL, env=os.environ | {"PYTHONWARNINGS": "default"},
        )  # fmt: skip
        self.consumers.append(process)
        self.stack.callback(_kill, process)
        return process

    def log(self, number: int = -1) -> str:
        """Return what a consumer has logged."""
        place = number % len(self.consumers)
        return (self.folder / f"log-{place}").read_text(encoding="utf-8")

    def send(self, *numbers: int, size: int = 3, session: str = "a") -> None:
        """Send items by hand, in this order."""
        with ternmq.sync.connect(self.broker.url) as client:
            for number in numbers:
                headers = {"ternmq-session": session, "ternmq-number": str(number),
                           "ternmq-size": str(size)}  # fmt: skip
                client.send(TOPIC, b"%d" % number, ordering_key=session, headers=headers)

    def done(self, session: str = "a") -> list[tuple[int, str]]:
        """Return the effects of a session, in the order of their transactions."""
        where = f"WHERE session = '{session}' ORDER BY place"
        rows = run(self.url, f"SELECT number, what FROM done {where}")
        return [(int(str(number)), str(what)) for number, what in rows]

    def items(self) -> int:
        [[count]] = run(self.url, "SELECT count(*) FROM ternmq_sequence_item")
        return int(str(count))

    def listed(self, *more: str) -> dict[str, dict[str, Any]]:
        """Return the sessions as ``ternmq sequence list`` prints them."""
        told = self.command("list", "--json", *more)
        return {one["session"]: one for one in map(json.loads, told.splitlines())}

    def command(self, verb: str, *more: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "ternmq", "sequence", verb, "--database", self.url, *more],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        return ended.stdout

    def states(self) -> dict[str, int]:
        rows = run(self.url, "SELECT session, state FROM ternmq_sequence")
        return {bytes(name).decode(): int(str(state)) for name, state in rows}  # type: ignore[call-overload]

    def wait_for(self, state: int, session: str = "a") -> None:
        wait_until(lambda: self.states().get(session) == state, f"{session} has state {state}", 60)

    def mark(self, name: str) -> Path:
        """Have a step wait, or fail, until the returned file is deleted."""
        path = self.folder / name
        path.touch()
        return path

    def wait_at(self, name: str) -> None:
        """Wait until a step waits in its transaction."""
        wait_until((self.folder / f"at-{name}").exists, f"a consumer is at {name}", 60)
        (self.folder / f"at-{name}").unlink()


PLACE = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "bigserial",
    "mysql": "bigint AUTO_INCREMENT PRIMARY KEY",
}
DONE, UNDONE, STOPPED, INCOMPLETE = 3, 4, 5, 6
IN_ORDER = [(1, "do"), (2, "do"), (3, "do")]


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.fixture(params=KINDS if LONG else ("sqlite", "postgresql"))
def database(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> str:
    """The URL of a new database; all kinds in `make outbox-faults`."""
    return servers.new(str(request.param), tmp_path)


@pytest.fixture
def bank(database: str, tmp_path: Path) -> Iterator[Bank]:
    place = PLACE[sa.make_url(database).get_backend_name()]
    opened = AlchemyDatabase(database)
    prepare(opened)
    opened.close()
    run(database, f"CREATE TABLE done (place {place}, session varchar(50), number integer, "
        "what varchar(10))")  # fmt: skip
    folder = tmp_path / "consumers"
    folder.mkdir()
    # Short, so that another consumer takes over while the test waits.
    with (
        BrokerProcess("dev", tmp_path / "broker", limits_session_grace="2s") as broker,
        ExitStack() as at,
    ):
        yield Bank(broker, database, folder, at)


@pytest.mark.row("K11")
def test_one_consumer_at_a_time_stores_items(bank: Bank) -> None:
    first = bank.consume(wait=0.1)
    wait_until(lambda: "owns queues 0" in bank.log(0), "the first one has the queue")
    bank.consume(wait=0.1)
    wait_until(lambda: "handler go_on" in bank.log(1), "the second one runs")
    bank.send(1, 2, 3)
    bank.wait_for(DONE)
    assert "owns queues 0" not in bank.log(1)
    _kill(first)
    bank.send(3, 2, 1, session="b")
    bank.wait_for(DONE, "b")
    assert "owns queues 0" in bank.log(1)
    assert bank.done() == bank.done("b") == IN_ORDER


@pytest.mark.row("K12")
def test_each_step_is_a_row_with_session_number_and_size(bank: Bank) -> None:
    engine = sa.create_engine(bank.url, poolclass=sa.NullPool)
    with ternmq.sync.connect(bank.broker.url) as client:
        client.declare(TOPIC)
        client.admin.create_topic("transfers", ordered=True)
        bank.broker.kill()
        outbox = Outbox(client, engine)
        with (
            engine.begin() as connection,
            sequence(client, TOPIC, within=connection, id="a") as steps,
        ):
            for number in (1, 2, 3):
                steps.add({"number": number})
        rows = outbox.rows()
        assert [row.ordering_key for row in rows] == ["a"] * 3
        wanted = [
            {"ternmq-session": "a", "ternmq-number": f"{number}", "ternmq-size": "3"}
            for number in (1, 2, 3)
        ]
        assert [dict(row.headers) for row in rows] == wanted
        bank.broker.start()
        outbox.flush(60)
        stored = client.read("transfers")
        assert [dict(one.headers) for one in stored] == wanted
        outbox.close()
    bank.consume()
    bank.wait_for(DONE)
    assert bank.done() == IN_ORDER


@pytest.mark.row("K13")
def test_items_are_stored_before_any_step(bank: Bank) -> None:
    bank.consume(wait=0.1)
    bank.send(3, 1)
    wait_until(lambda: bank.items() == 2, "both are stored")
    looks = "SELECT tries FROM ternmq_sequence"
    wait_until(lambda: int(str(run(bank.url, looks)[0][0])) >= 2, "it was looked at twice")
    assert bank.done() == []
    hold = bank.mark("hold-do-a-1")
    bank.send(2)
    bank.wait_at("do-a-1")
    assert bank.items() == 3  # all are stored when the first step begins
    hold.unlink()
    bank.wait_for(DONE)


@pytest.mark.row("K14")
def test_the_first_item_has_a_delayed_message_sent_to_itself(bank: Bank) -> None:
    bank.consume(wait=3600)
    bank.send(2)
    with ternmq.sync.connect(bank.broker.url) as client:

        def waiting() -> list[str]:
            with suppress(ternmq.UnknownTopic):
                found = client.admin.scheduled_messages("transfers.bank.steps")
                return [one.id for one in found]
            return []

        wait_until(lambda: len(waiting()) == 1, "it is scheduled")
        one = client.get("transfers.bank.steps", waiting()[0])
        assert (one.state, one.key) == ("scheduled", "a")
        assert (one.headers["ternmq-session"], one.headers["ternmq-size"]) == ("a", "3")
        assert one.due_at is not None
        assert 3500 < (one.due_at - one.stored_at).total_seconds() <= 3601
        bank.send(1, 3)  # the last one has a message sent that is due at once
        bank.wait_for(DONE)
    assert bank.done() == IN_ORDER


@pytest.mark.row("K15")
def test_shuffled_items_are_done_in_order(bank: Bank) -> None:
    bank.consume(wait=0.1)
    bank.send(3, 1, 2)
    bank.send(2, 3, 1, session="b")
    bank.wait_for(DONE)
    bank.wait_for(DONE, "b")
    assert bank.done() == bank.done("b") == IN_ORDER


@pytest.mark.row("K15")
@pytest.mark.parametrize("database", ["postgresql", *["mariadb"] * LONG], indirect=True)
def test_sessions_are_done_side_by_side(bank: Bank) -> None:
    """Not on SQLite, which has one lock."""
    bank.consume()
    hold = bank.mark("hold-do-a-1")
    bank.send(1, 2, 3)
    bank.wait_at("do-a-1")
    bank.send(1, 2, 3, session="b")
    bank.wait_for(DONE, "b")
    assert bank.done() == []
    hold.unlink()
    bank.wait_for(DONE)


@pytest.mark.row("K16")
def test_a_missing_item_is_waited_for_then_listed_and_goes_on(bank: Bank) -> None:
    bank.consume(wait=0.1, give_up=1.0)
    bank.send(3, 1)
    bank.wait_for(INCOMPLETE)
    assert bank.done() == []
    listed = bank.listed()
    assert (listed["a"]["state"], listed["a"]["missing"]) == ("incomplete", [2])
    bank.send(2)
    bank.wait_for(DONE)
    assert bank.done() == IN_ORDER
    assert bank.listed() == {}


@pytest.mark.row("K16")
def test_a_message_to_itself_that_was_lost_is_sent_again(bank: Bank) -> None:
    """Deleted by hand from the outbox, before it was sent."""
    first = bank.consume(wait=3600, every=0.5)
    bank.send(1, 2)
    wait_until(lambda: bank.items() == 2, "they are stored")
    bank.broker.kill()  # what is written from now on stays in the outbox
    _kill(first)
    run(
        bank.url,
        "INSERT INTO ternmq_sequence_item SELECT consumer, session, 3, id, message_key, tag, "
        "content_type, headers, body FROM ternmq_sequence_item WHERE number = 2",
        "UPDATE ternmq_sequence SET state = 1, stored = 3, turn = turn + 1, next_ms = 0",
        "DELETE FROM ternmq_outbox",
    )
    bank.broker.start()
    bank.consume(wait=3600, every=0.5)
    bank.wait_for(DONE)
    assert bank.done() == IN_ORDER


@pytest.mark.row("K17")
@pytest.mark.parametrize("rule", ["retry", "stop", "compensate"])
def test_a_failing_last_step_follows_the_rule(bank: Bank, rule: str) -> None:
    broken = bank.mark("fail-do-a-3")
    bank.consume(on_failure=rule, attempts=3)
    bank.send(1, 2, 3)
    if rule == "compensate":
        bank.wait_for(UNDONE)
        assert bank.done() == [(1, "do"), (2, "do"), (2, "undo"), (1, "undo")]
        return
    bank.wait_for(STOPPED)
    assert bank.done() == IN_ORDER[:2]
    listed = bank.listed()["a"]
    assert listed["tries"] == (3 if rule == "retry" else 1)
    assert listed["error"] == "ValueError: do-a-3 fails"
    broken.unlink()
    bank.command("resume", "a")
    bank.wait_for(DONE)
    assert bank.done() == IN_ORDER


@pytest.mark.row("K17")
def test_an_operator_skips_or_cancels(bank: Bank) -> None:
    bank.mark("fail-do-a-2")
    bank.mark("fail-do-b-3")
    bank.consume(on_failure="stop")
    bank.send(1, 2, 3)
    bank.send(1, 2, 3, session="b")
    bank.wait_for(STOPPED)
    bank.wait_for(STOPPED, "b")
    bank.command("skip", "a", "--yes")
    bank.command("cancel", "b", "--undo", "--yes")
    bank.wait_for(DONE)
    bank.wait_for(UNDONE, "b")
    assert bank.done() == [(1, "do"), (3, "do")]
    assert bank.done("b") == [(1, "do"), (2, "do"), (2, "undo"), (1, "undo")]


# -- kills ----------------------------------------------------------------------------------------


@pytest.mark.row("K15")
def test_a_consumer_that_is_killed_in_a_step(bank: Bank) -> None:
    hold = bank.mark("hold-do-a-2")
    first = bank.consume(wait=0.1, every=1.0)
    bank.send(2, 1, 3)
    bank.wait_at("do-a-2")
    assert bank.done() == IN_ORDER[:1]
    _kill(first)
    hold.unlink()
    bank.consume(wait=0.1, every=1.0)
    bank.wait_for(DONE)
    assert bank.done() == IN_ORDER


@pytest.mark.row("K17")
def test_a_consumer_that_is_killed_while_it_undoes(bank: Bank) -> None:
    hold = bank.mark("hold-undo-a-1")
    bank.mark("fail-do-a-3")
    first = bank.consume(on_failure="compensate", every=1.0)
    bank.send(1, 2, 3)
    bank.wait_at("undo-a-1")
    _kill(first)
    hold.unlink()
    bank.consume(on_failure="compensate", every=1.0)
    bank.wait_for(UNDONE)
    assert bank.done() == [(1, "do"), (2, "do"), (2, "undo"), (1, "undo")]


@pytest.mark.row("K15")
def test_a_broker_that_is_killed_between_steps(bank: Bank) -> None:
    hold = bank.mark("hold-do-a-2")
    bank.consume(wait=0.1, every=1.0)
    bank.send(1, 2, 3)
    bank.wait_at("do-a-2")
    bank.broker.kill()
    hold.unlink()
    wait_until(lambda: len(bank.done()) >= 2, "the step goes on without a broker")
    bank.broker.start()
    bank.wait_for(DONE)
    bank.send(3, 1, 2, session="b")
    bank.wait_for(DONE, "b")
    assert bank.done() == bank.done("b") == IN_ORDER


@pytest.mark.row("K15")
def test_effects_come_once_and_in_order_whoever_is_killed(bank: Bank) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    sessions = [f"s{number}" for number in range(12)]
    sizes = {name: chance.randint(1, 5) for name in sessions}
    todo = [(name, number) for name in sessions for number in range(1, sizes[name] + 1)]
    todo += chance.sample(todo, len(todo) // 2)  # some come twice
    chance.shuffle(todo)
    consumers = [bank.consume(wait=0.1, every=1.0) for _ in range(2)]
    kills = 0
    for place, (name, number) in enumerate(todo):
        if place % 8 == 4:
            one = chance.randrange(3)
            if one == 2:
                bank.broker.restart(kill=True)
            else:
                _kill(consumers[one])
                consumers[one] = bank.consume(wait=0.1, every=1.0)
            kills += 1
        bank.send(number, size=sizes[name], session=name)
    assert kills >= 4
    for name in sessions:
        bank.wait_for(DONE, name)
    for name in sessions:
        wanted = [(number, "do") for number in range(1, sizes[name] + 1)]
        assert bank.done(name) == wanted, (name, seed)
