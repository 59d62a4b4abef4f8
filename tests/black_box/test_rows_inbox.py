"""Rows of MISSION, messages that come twice: workers in processes of their own, three databases."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

import ternmq
import ternmq.sync
from ternmq.reliable import Inbox, Outbox, idempotent
from tests import coordinators
from tests.black_box.process import DEADLINE, BrokerProcess, wait_until
from tests.fault.reliable.tools import much
from tests.redises import DURABLE, RedisServer, redis_server

ROOT = Path(__file__).parents[2]
EFFECT = sa.text("INSERT INTO effects VALUES (:id, 1)")
TABLES = ("effects", "ternmq_outbox", "ternmq_lease", "ternmq_inbox", "ternmq_schema")
HELD_S = much(7, 90)
"""How long a handler works: longer than another one waits for it (5 s)."""
WEEK_MS = 7 * 24 * 3_600_000


@pytest.fixture
def own(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yield a broker that forgets ids as soon as it may."""
    with BrokerProcess(
        "dev", tmp_path / "broker", limits_send_timeout="500ms", limits_dedup_window="1s"
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def postgresql() -> Iterator[coordinators.Server]:
    with coordinators.postgresql() as server:
        if server is None:
            pytest.skip("needs PostgreSQL")
        yield server


@pytest.fixture(scope="module")
def mariadb() -> Iterator[coordinators.Server]:
    with coordinators.mariadb() as server:
        if server is None:
            pytest.skip("needs MariaDB")
        yield server


@contextmanager
def shop(url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(url, pool_size=20)
    try:
        with engine.begin() as connection:
            for table in TABLES:
                connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
            connection.exec_driver_sql("CREATE TABLE effects (id VARCHAR(64), n INTEGER)")
        yield engine
    finally:
        engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """Yield each kind of database, with the tables of the inbox."""
    url = f"sqlite:///{tmp_path}/shop.db"
    if request.param != "sqlite":
        url = request.getfixturevalue(request.param).url
    with shop(url) as made:
        with Inbox(made) as inbox:
            inbox.prepare()
        yield made


@pytest.fixture
def client(own: BrokerProcess) -> Iterator[ternmq.sync.Client]:
    with ternmq.sync.connect(own.url) as made:
        for topic in ("orders", "invoices"):
            made.admin.create_topic(topic)
        yield made


class Worker:
    """A worker in a process of its own; leaving ends it, if it lives."""

    def __init__(
        self, broker: BrokerProcess, database: sa.Engine | RedisServer, notes: Path, where: str
    ) -> None:
        url = (
            database.url if isinstance(database, RedisServer)
            else database.url.render_as_string(hide_password=False)
        )  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.black_box.inbox_worker", broker.url, url, where,
             str(notes)], cwd=ROOT,
        )  # fmt: skip

    def dies(self) -> bool:
        return self.process.wait(DEADLINE) == -signal.SIGKILL

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(DEADLINE)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()


def ids(engine: sa.Engine, table: str = "effects") -> Counter[str]:
    with engine.connect() as connection:
        found = connection.exec_driver_sql(f"SELECT id FROM {table}").scalars()
        return Counter(one if isinstance(one, str) else bytes(one).decode() for one in found)


def bodies(client: ternmq.sync.Client, topic: str) -> Counter[bytes]:
    return Counter(one.body for one in client.read(topic))


def send_beyond_the_window(client: ternmq.sync.Client, order: str) -> None:
    """Send an id until the broker stores it again: it has forgotten the first."""
    pause = threading.Event()

    def stored() -> bool:
        pause.wait(0.2)
        return not client.send("orders", order, id=order).duplicate

    wait_until(stored, "the broker has forgotten the id")


@contextmanager
def running(client: ternmq.sync.Client) -> Iterator[None]:
    thread = threading.Thread(target=client.run)
    thread.start()
    try:
        yield
    finally:
        client.stop()
        thread.join(DEADLINE)


# -- M1, M2 ---------------------------------------------------------------------------------------


@pytest.mark.row("M1")
def test_one_id_three_times_has_one_effect(own, client, engine, tmp_path) -> None:
    with Worker(own, engine, tmp_path / "notes", "nowhere"):
        client.send("orders", "order-7", id="order-7")
        for _ in range(2):
            send_beyond_the_window(client, "order-7")
        client.send("orders", "last", id="last")
        wait_until(lambda: ids(engine)["last"] == 1, "all are handled")
        wait_until(lambda: len(bodies(client, "invoices")) == 2, "both invoices are sent")
    assert bodies(client, "orders") == {b"order-7": 3, b"last": 1}
    assert ids(engine) == {"order-7": 1, "last": 1}
    assert bodies(client, "invoices") == {b"order-7": 1, b"last": 1}
    assert (tmp_path / "notes").read_text().split() == ["order-7", "last"]


@pytest.mark.row("M1")
@pytest.mark.row("M2")
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_worker_killed_between_effect_and_ack(own, client, engine, tmp_path, where) -> None:
    client.send("orders", "order-7", id="order-7")
    for _ in range(2):
        with Worker(own, engine, tmp_path / "notes", where) as worker:
            assert worker.dies()
        expected = {"order-7": 1} if where == "after" else {}
        assert ids(engine) == expected
        assert ids(engine, "ternmq_inbox") == expected
    with Worker(own, engine, tmp_path / "notes", "nowhere"):
        client.send("orders", "last", id="last")
        wait_until(lambda: set(ids(engine)) == {"order-7", "last"}, "both are handled")
        wait_until(lambda: len(bodies(client, "invoices")) == 2, "both invoices are sent")
        wait_until(lambda: _open(client) == 0, "both are acked")
    assert ids(engine) == {"order-7": 1, "last": 1}
    assert bodies(client, "invoices") == {b"order-7": 1, b"last": 1}
    calls = Counter((tmp_path / "notes").read_text().split())
    assert calls == {"order-7": 1 if where == "after" else 3, "last": 1}


def _open(client: ternmq.sync.Client) -> int:
    """Return how many messages are not acked."""
    queues = client.admin.group("orders", "billing").queues
    return sum(one.end - one.floor + one.waiting for one in queues)


@pytest.mark.row("M1")
def test_of_two_processes_with_one_id_one_runs_its_handler(own, client, engine, tmp_path) -> None:
    notes = [tmp_path / "one", tmp_path / "two"]
    client.send("orders", "order-7", id="order-7")
    with Worker(own, engine, notes[0], "hold"), Worker(own, engine, notes[1], "hold"):
        wait_until(lambda: any(one.exists() for one in notes), "one handler runs")
        send_beyond_the_window(client, "order-7")  # the other has it now, and waits
        for one in notes:
            Path(f"{one}.go").touch()
        client.send("orders", "last", id="last")
        wait_until(lambda: ids(engine)["last"] == 1, "all are handled")
        wait_until(lambda: _open(client) == 0, "all are acked")
    assert ids(engine) == {"order-7": 1, "last": 1}
    calls = Counter([line for one in notes if one.exists() for line in one.read_text().split()])
    assert calls == {"order-7": 1, "last": 1}


@pytest.mark.row("M1")
@pytest.mark.timeout(60 + 4 * HELD_S)
def test_a_handler_that_takes_long(own, client, engine, tmp_path) -> None:
    """Its lease of 2 s is extended, and it runs once; the same id elsewhere is retried later."""
    notes = [tmp_path / "one", tmp_path / "two"]
    client.send("orders", "order-7", id="order-7")
    with Worker(own, engine, notes[0], "hold"), Worker(own, engine, notes[1], "hold"):
        wait_until(lambda: any(one.exists() for one in notes), "one handler runs")
        until = time.monotonic() + HELD_S
        send_beyond_the_window(client, "order-7")
        wait_until(lambda: _waiting(client) == 1, "the other one has given up, for now")
        threading.Event().wait(max(0.0, until - time.monotonic()))
        assert ids(engine) == {}
        assert [one.exists() for one in notes].count(True) == 1
        for one in notes:
            Path(f"{one}.go").touch()
        client.send("orders", "last", id="last")
        wait_until(lambda: ids(engine)["last"] == 1, "all are handled")
        wait_until(lambda: _open(client) == 0, "all are acked", 90)
    assert ids(engine) == {"order-7": 1, "last": 1}
    assert bodies(client, "invoices") == {b"order-7": 1, b"last": 1}
    calls = Counter([line for one in notes if one.exists() for line in one.read_text().split()])
    assert calls == {"order-7": 1, "last": 1}


def _waiting(client: ternmq.sync.Client) -> int:
    """Return how many messages wait for their retry."""
    return sum(one.waiting for one in client.admin.group("orders", "billing").queues)


# -- M3 -------------------------------------------------------------------------------------------


@pytest.mark.row("M3")
@pytest.mark.row("M1")
def test_an_inbox_in_memory(client: ternmq.sync.Client) -> None:
    effects: list[str] = []
    inbox = Inbox.memory(1000)

    @client.handler("orders", group="billing")
    @idempotent(inbox)
    def bill(order: str) -> None:
        effects.append(order)

    with running(client):
        client.send("orders", "order-7", id="order-7")
        for _ in range(2):
            send_beyond_the_window(client, "order-7")
        wait_until(lambda: inbox.stats().suppressed == 2, "the repeats are suppressed")
    assert effects == ["order-7"]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with redis_server(folder, *DURABLE) as server:
        yield server


@pytest.mark.row("M3")
def test_an_inbox_in_redis_and_its_server_is_killed(own, client, redis, tmp_path) -> None:
    """The worker goes on by itself; what was done before is known after the restart."""
    notes = tmp_path / "notes"
    with Worker(own, redis, notes, "nowhere"):
        client.send("orders", "order-7", id="order-7")
        wait_until(notes.exists, "it is handled")
        wait_until(lambda: _open(client) == 0, "it is acked")
        redis.kill()
        send_beyond_the_window(client, "order-7")
        client.send("orders", "order-8", id="order-8")
        wait_until(lambda: _waiting(client) == 2, "both have failed, and wait for another attempt")
        redis.start()
        client.send("orders", "last", id="last")
        wait_until(lambda: _open(client) == 0, "all are acked")
    assert sorted(notes.read_text().split()) == ["last", "order-7", "order-8"]
    assert bodies(client, "orders") == {b"order-7": 2, b"order-8": 1, b"last": 1}


@pytest.mark.row("M3")
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_worker_with_an_inbox_in_redis_is_killed(own, client, redis, tmp_path, where) -> None:
    """Between effect and mark: at least once. Between mark and ack: once."""
    notes = tmp_path / "notes"
    client.send("orders", "order-7", id="order-7")
    for _ in range(2):
        with Worker(own, redis, notes, where) as worker:
            assert worker.dies()
    with Worker(own, redis, notes, "nowhere"):
        client.send("orders", "last", id="last")
        wait_until(lambda: _open(client) == 0, "both are acked")
    calls = Counter(notes.read_text().split())
    assert calls == {"order-7": 3 if where == "before" else 1, "last": 1}


@pytest.mark.row("M3")
def test_of_two_processes_with_an_inbox_in_redis_one_runs(own, client, redis, tmp_path) -> None:
    notes = [tmp_path / "one", tmp_path / "two"]
    client.send("orders", "order-7", id="order-7")
    with Worker(own, redis, notes[0], "hold"), Worker(own, redis, notes[1], "hold"):
        wait_until(lambda: any(one.exists() for one in notes), "one handler runs")
        send_beyond_the_window(client, "order-7")  # the other has it now, and waits
        for one in notes:
            Path(f"{one}.go").touch()
        client.send("orders", "last", id="last")
        wait_until(lambda: _open(client) == 0, "all are acked")
    calls = Counter([line for one in notes if one.exists() for line in one.read_text().split()])
    assert calls == {"order-7": 1, "last": 1}


# -- M6 -------------------------------------------------------------------------------------------


@pytest.mark.row("M6")
def test_an_id_belongs_to_one_shard_and_shards_are_even(
    client: ternmq.sync.Client, tmp_path
) -> None:
    names = ("a", "b", "c")
    with ExitStack() as stack:
        urls = [f"sqlite:///{tmp_path}/{name}.db" for name in names]
        a, b, c = (stack.enter_context(shop(url)) for url in urls)
        engines = dict(zip(names, (a, b, c), strict=True))
        inbox = Inbox(shards=engines)
        inbox.prepare()

        @client.handler("orders", group="billing", concurrency=4)
        @idempotent(inbox)
        def bill(order: str, session: Session) -> None:
            session.execute(EFFECT, {"id": order})

        orders = [f"order-{number}" for number in range(90)]
        with running(client):
            for order in orders:
                client.send("orders", order, id=order)
            for order in orders[:9]:
                send_beyond_the_window(client, order)
            wait_until(lambda: inbox.stats().suppressed == 9, "the repeats are suppressed")
            wait_until(lambda: inbox.stats().handled == 90, "all are handled")
        inbox.close()
        found = {name: ids(one) for name, one in engines.items()}
        assert sum(found.values(), Counter()) == Counter(orders)
        assert all(ids(one, "ternmq_inbox") == found[name] for name, one in engines.items())
        assert all(len(one) >= 15 for one in found.values()), found

        fewer = Inbox(shards={"a": a, "b": b}, clean=False)
        with pytest.raises(ternmq.ShardsChanged, match="a, b, c"):
            fewer.prepare()
        swapped = Inbox(shards={"a": b, "b": a, "c": c}, clean=False)
        with pytest.raises(ternmq.ShardsChanged):
            swapped.prepare()
        for one in (fewer, swapped):
            one.close()


# -- M7 -------------------------------------------------------------------------------------------


@pytest.mark.row("M7")
@pytest.mark.row("K3")
def test_what_an_outbox_sends_again_has_one_effect(own, client, engine, tmp_path) -> None:
    """As when the row stayed: it is sent again with its id, beyond the broker's window."""
    outbox = Outbox(client, engine, resend_after=0.1)
    with Worker(own, engine, tmp_path / "notes", "nowhere"):
        with Session(engine) as session, session.begin():
            client.send("orders", "order-7", within=session)
        outbox.flush(20)
        wait_until(lambda: ids(engine)["order-7"] == 1, "it is handled")
        [first] = list(client.read("orders"))
        send_again = {"id": first.application_id}
        pause = threading.Event()

        def stored() -> bool:
            pause.wait(0.2)
            return not client.send("orders", "order-7", **send_again).duplicate

        wait_until(stored, "the broker has forgotten the id")
        client.send("orders", "last", id="last")
        wait_until(lambda: ids(engine)["last"] == 1, "all are handled")
        wait_until(lambda: _open(client) == 0, "all are acked")
    outbox.close()
    assert {one.application_id for one in client.read("orders")} == {first.application_id, "last"}
    assert ids(engine) == {"order-7": 1, "last": 1}


# -- M8 -------------------------------------------------------------------------------------------


@pytest.mark.row("M8")
def test_what_is_older_than_a_week_is_removed(own, client, engine, tmp_path) -> None:
    """The time is an argument of ``clean``, which the worker calls once a minute by itself."""
    with Worker(own, engine, tmp_path / "notes", "nowhere"):
        client.send("orders", "order-7", id="order-7")
        wait_until(lambda: ids(engine)["order-7"] == 1, "it is handled")
        with Inbox(engine, clean=False) as inbox:
            with engine.connect() as connection:
                until_ms = int(
                    connection.exec_driver_sql("SELECT until_ms FROM ternmq_inbox").scalar_one()
                )
            assert inbox.clean() == 0
            assert inbox.clean(now_ms=until_ms) == 0
            assert ids(engine, "ternmq_inbox") == {"order-7": 1}
            assert inbox.clean(now_ms=until_ms + 1) == 1
            send_beyond_the_window(client, "order-7")
            wait_until(lambda: ids(engine)["order-7"] == 2, "it is handled again")
            with engine.connect() as connection:
                again_ms = int(
                    connection.exec_driver_sql("SELECT until_ms FROM ternmq_inbox").scalar_one()
                )
            kept_ms = again_ms - WEEK_MS
            assert until_ms - WEEK_MS < kept_ms < until_ms
