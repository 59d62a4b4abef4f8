"""Rows of MISSION, sending within a database's transaction: SQLite, PostgreSQL, MariaDB.

What is asserted is what others see: the tables, the topic, and the bytes on the line to the broker.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
import sqlalchemy as sa

import ternmq
import ternmq.sync
from ternmq.reliable import Outbox
from tests.black_box import transactions
from tests.black_box.process import DEADLINE, BrokerProcess, wait_until
from tests.black_box.stranger import SEND
from tests.black_box.wire import Wire
from tests.killable_databases import KINDS, Servers, quick_folder

pytestmark = pytest.mark.slow

UNDONE = b"of a savepoint that was rolled back"
AWAITED = [
    (kind, way)
    for kind in KINDS
    for way in transactions.AWAITED_WAYS
    if kind == "postgresql" or not way.startswith("psycopg")
]
_topics = count(1)


@dataclass(slots=True)
class Shop:
    """A database of an application.

    Attributes:
        kind: One of ``KINDS``.
        engine: The application's.
        looking: Of somebody else, who only reads.
    """

    kind: str
    engine: sa.Engine
    looking: sa.Engine

    def _one(self, query: str) -> int:
        with self.looking.connect() as connection:
            return int(connection.exec_driver_sql(query).scalar_one())

    def rows(self) -> int:
        """Return how many rows the outbox has, as others see it."""
        return self._one("SELECT count(*) FROM ternmq_outbox")

    def orders(self) -> int:
        """Return how many orders there are, as others see it."""
        return self._one("SELECT count(*) FROM orders")

    def column(self, name: str) -> list[object]:
        """Return a column of the outbox."""
        with self.looking.connect() as connection:
            found = connection.exec_driver_sql(f"SELECT {name} FROM ternmq_outbox ORDER BY seq")
            return [value for (value,) in found]

    def renewed(self) -> int:
        """Return until when the compensator's lease lasts."""
        return self._one("SELECT coalesce(max(until_ms), 0) FROM ternmq_lease")


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    folder = Path(tempfile.mkdtemp(prefix="ternmq-shops-", dir=quick_folder()))
    with Servers(folder) as made:
        yield made
    shutil.rmtree(folder)


@pytest.fixture(params=KINDS)
def shop(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Shop]:
    kind = request.param
    url = servers.fresh(kind)
    engine = transactions.immediate(sa.create_engine(url, poolclass=sa.NullPool))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id INTEGER)")
    unused = ternmq.sync.connect("ternmq://127.0.0.1:1")
    with Outbox(unused, engine, compensate=False) as outbox:
        outbox.prepare()
    yield Shop(kind, engine, sa.create_engine(url, poolclass=sa.NullPool))
    servers.drop(kind, url)


@pytest.fixture
def wire(dev: BrokerProcess) -> Iterator[Wire]:
    with Wire(dev.port) as made:
        yield made


@pytest.fixture
def own(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yield a broker that the test may kill."""
    with BrokerProcess("dev", tmp_path / "broker", segment="4MiB") as broker:
        yield broker


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def topic() -> str:
    return f"within-{next(_topics)}"


def outbox_of(
    stack: ExitStack, url: str, shop: Shop, *, timeout: float = 10.0, **options: object
) -> tuple[ternmq.sync.Client, Outbox]:
    """Return a client that has not connected, and its outbox; both are closed with the stack."""
    client = ternmq.sync.connect(url, timeout=timeout)
    stack.callback(client.close, 0)
    outbox = Outbox(client, shop.engine, **options)  # type: ignore[arg-type]
    stack.callback(outbox.close)
    return client, outbox


def stored(client: ternmq.sync.Client, topic: str) -> list[tuple[str, bytes]]:
    """Return id and body of the messages of a topic, from the first on."""
    try:
        return [(one.application_id, one.body) for one in client.read(topic)]
    except ternmq.UnknownTopic:  # nothing was sent yet
        return []


def wait_for_looks(outbox: Outbox) -> None:
    """Wait until the compensator has looked twice."""
    looks = outbox.stats().scans
    wait_until(lambda: outbox.stats().scans >= looks + 2, "the compensator looks")


def wait_for_looks_within(shop: Shop, outbox: Outbox) -> None:
    """Wait until the compensator has looked twice, while a transaction is open.

    SQLite has one writer. On a busy machine, the compensator must renew its lease before it has
    looked twice, cannot, and loses the lease: it sends nothing either way.
    """
    looks = outbox.stats().scans

    def looked() -> bool:
        stats = outbox.stats()
        return stats.scans >= looks + 2 or (shop.kind == "sqlite" and not stats.leader)

    wait_until(looked, "the compensator looks")


def wait_for_renewal(shop: Shop, outbox: Outbox) -> None:
    """Wait until the compensator has time for looks before it must write: SQLite has one writer."""
    outbox.start()
    before = shop.renewed()
    wait_until(lambda: shop.renewed() > before, "the lease is renewed")


def undo(client: ternmq.sync.Client, way: transactions.Way, topic: str) -> None:
    """Send within a savepoint, and roll it back."""
    way.run("SAVEPOINT inner_one")
    client.send(topic, UNDONE, within=way.within)
    way.run("ROLLBACK TO SAVEPOINT inner_one")


@pytest.mark.row("J1", "J2", "J3", "K18")
@pytest.mark.parametrize("way", transactions.WAYS)
def test_nothing_is_sent_before_the_commit(dev, wire, client, shop, stack, topic, way) -> None:
    """Rolled back: no row, no message, not a byte. Committed: one message, and the row goes."""
    begin = transactions.WAYS[way]
    sender, outbox = outbox_of(stack, wire.url, shop)
    wait_for_renewal(shop, outbox)
    with begin(shop.engine, outbox) as open_one:
        open_one.run("INSERT INTO orders VALUES (1)")
        receipt = sender.send(topic, b"never", ordering_key="k", within=open_one.within)
        sender.send(topic, b"never", within=open_one.within)
        assert receipt.pending
        undo(sender, open_one, topic)
        wait_for_looks_within(shop, outbox)
        assert (wire.connections, wire.up_bytes) == (0, 0), "nothing was sent before the end"
        assert (shop.rows(), shop.orders()) == (0, 0), "others see neither"
        open_one.rollback()
    wait_for_looks(outbox)
    assert (wire.connections, wire.up_bytes) == (0, 0), "nothing was sent of what was rolled back"
    assert (shop.rows(), shop.orders()) == (0, 0)
    with begin(shop.engine, outbox) as open_one:
        open_one.run("INSERT INTO orders VALUES (2)")
        receipt = sender.send(topic, b"2", ordering_key="k", within=open_one.within)
        undo(sender, open_one, topic)
        plain = sender.send(f"{topic}-plain", b"2", within=open_one.within)
        assert (wire.connections, wire.up_bytes) == (0, 0), "nothing was sent before the commit"
        open_one.commit()
    wait_until(lambda: shop.rows() == 0, "the rows are gone")
    assert stored(client, topic) == [(receipt.id, b"2")]
    assert stored(client, f"{topic}-plain") == [(plain.id, b"2")]
    assert shop.orders() == 1
    assert wire.up_bytes > 0
    assert outbox.stats().duplicates == 0


@pytest.mark.row("J1", "J2", "J3", "J5b", "K18")
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_sent_before_the_commit_of_django(
    wire, client, servers, topic, kind, tmp_path
) -> None:
    """An application that says nothing of outboxes: ``transaction.atomic``, and ``send``."""
    url = servers.fresh(kind)
    shop = Shop(kind, sa.create_engine(url), sa.create_engine(url, poolclass=sa.NullPool))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.black_box.django_shop", url, wire.url, topic, str(tmp_path)],
        cwd=Path(__file__).parents[2],
    )

    def stands(name: str) -> None:
        there: Path = tmp_path / f"{name}.there"
        wait_until(
            lambda: there.exists() or process.poll() is not None, f"the application is at {name}"
        )
        assert process.poll() is None, "the application has ended"
        assert (wire.connections, wire.up_bytes) == (0, 0), "nothing was sent"
        assert (shop.rows(), shop.orders()) == (0, 0), "others see neither"
        (tmp_path / f"{name}.go").touch()

    try:
        stands("undone")
        stands("done")  # nothing was sent of what was rolled back, either
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        process.wait()
    assert [body for _, body in stored(client, topic)] == [b"done", b"outside"]
    assert (shop.rows(), shop.orders()) == (0, 1)
    shop.engine.dispose()
    servers.drop(kind, url)


@pytest.mark.row("J1", "J2", "J3", "K18")
@pytest.mark.parametrize(("shop", "way"), AWAITED, indirect=["shop"])
async def test_nothing_is_sent_before_the_commit_that_is_awaited(
    dev, wire, shop, topic, way
) -> None:
    """The same with ``await``."""
    begin = transactions.AWAITED_WAYS[way]
    engine = transactions.awaited_engine(shop.engine, shop.kind)
    sender = ternmq.connect(wire.url)
    outbox = Outbox(sender, engine)
    try:
        await asyncio.to_thread(wait_for_renewal, shop, outbox)
        async with begin(engine) as open_one:
            await open_one.run("INSERT INTO orders VALUES (1)")
            receipt = await sender.send(topic, b"never", within=open_one.within)
            assert receipt.pending
            await asyncio.to_thread(wait_for_looks_within, shop, outbox)
            assert (wire.connections, wire.up_bytes) == (0, 0), "nothing was sent before the end"
            await open_one.rollback()
        await asyncio.to_thread(wait_for_looks, outbox)
        assert (wire.connections, wire.up_bytes) == (0, 0), "nothing was sent of what is undone"
        assert (shop.rows(), shop.orders()) == (0, 0)
        async with begin(engine) as open_one:
            await open_one.run("INSERT INTO orders VALUES (2)")
            await open_one.run("SAVEPOINT inner_one")
            await sender.send(topic, UNDONE, within=open_one.within)
            await open_one.run("ROLLBACK TO SAVEPOINT inner_one")
            receipt = await sender.send(topic, b"2", within=open_one.within)
            assert (wire.connections, wire.up_bytes) == (0, 0), "nothing was sent before the commit"
            await open_one.commit()
        await asyncio.to_thread(wait_until, lambda: shop.rows() == 0, "the row is gone")
        async with ternmq.connect(dev.url) as client:
            found = [(one.application_id, one.body) async for one in client.read(topic)]
        assert found == [(receipt.id, b"2")]
        assert shop.orders() == 1
    finally:
        await asyncio.to_thread(outbox.close)
        await sender.close(0)
        await engine.dispose()


@pytest.mark.row("J4", "K2", "J3")
def test_a_broker_that_is_away_holds_up_no_commit(own, shop, stack, topic) -> None:
    """It comes back, the messages arrive, the rows go, and no human did anything."""
    sender, outbox = outbox_of(stack, own.url, shop)
    own.kill()
    with transactions.session(shop.engine, outbox) as open_one:
        open_one.run("INSERT INTO orders VALUES (1)")
        ids = [
            sender.send(topic, b"%d" % number, ordering_key="k", within=open_one.within).id
            for number in range(5)
        ]
        plain = sender.send(f"{topic}-plain", b"plain", within=open_one.within).id
        open_one.commit()
    assert (shop.orders(), shop.rows()) == (1, 6)
    assert shop.column("state") == [0] * 6, "sending"
    own.start()
    wait_until(lambda: shop.rows() == 0, "the rows are gone")
    with ternmq.sync.connect(own.url) as client:
        assert [id_ for id_, _ in stored(client, topic)] == ids
        assert [id_ for id_, _ in stored(client, f"{topic}-plain")] == [plain]


@pytest.mark.row("J4", "K3", "J5d")
def test_what_a_process_leaves_is_sent_by_the_compensator_of_another(
    own, shop, stack, topic, caplog
) -> None:
    """Its steps are scan, resend, response, delete."""
    own.kill()
    with ExitStack() as first:
        sender, outbox = outbox_of(first, own.url, shop, timeout=0.5, compensate=False)
        with transactions.session(shop.engine, outbox) as open_one:
            receipt = sender.send(topic, b"left", within=open_one.within)
            open_one.commit()
        outbox.close(timeout=0)
    assert shop.rows() == 1
    own.start()
    with caplog.at_level(logging.DEBUG, "ternmq.reliable"):
        _, other = outbox_of(stack, own.url, shop, resend_after=0.5)
        other.start()
        wait_until(lambda: shop.rows() == 0, "the row is gone")
    with ternmq.sync.connect(own.url) as client:
        assert stored(client, topic) == [(receipt.id, b"left")]
    told = [one for one in steps_of(caplog, receipt.id) if one != "scan"]
    assert told[-3:] == ["resend", "response", "delete resent"]
    assert "scan" in steps_of(caplog)


@pytest.mark.row("J5d")
def test_the_trace_log_of_a_send(dev, shop, stack, topic, caplog) -> None:
    """All of its steps in their order, with the id of the message."""
    sender, outbox = outbox_of(stack, dev.url, shop, compensate=False)
    with caplog.at_level(logging.DEBUG, "ternmq.reliable"):
        with transactions.block(shop.engine, outbox) as open_one:
            open_one.run("INSERT INTO orders VALUES (1)")
            receipt = sender.send(topic, b"1", within=open_one.within)
            open_one.commit()
        wait_until(lambda: "delete" in steps_of(caplog, receipt.id), "it is deleted")
    wanted = ["begin", "work", "insert", "commit", "send", "response", "delete"]
    assert steps_of(caplog) == wanted
    assert steps_of(caplog, receipt.id) == wanted[2:]


def steps_of(caplog: pytest.LogCaptureFixture, id_: str = "") -> list[str]:
    """Return the steps in the trace log, or those of a message."""
    told = [
        record.getMessage().split(": ", 1)
        for record in caplog.records
        if record.name == "ternmq.reliable" and record.levelno == logging.DEBUG
    ]
    return [step[0] for step in told if not id_ or id_ in step[1:][-1:][0].split()]


@pytest.mark.row("K2")
def test_rows_that_are_kept_go_from_sending_to_sent(own, shop, stack, topic) -> None:
    """The business row, the row of the message with its state, and the update by the answer."""
    sender, outbox = outbox_of(stack, own.url, shop, keep_sent=3600)
    own.kill()
    with transactions.session(shop.engine, outbox) as open_one:
        open_one.run("INSERT INTO orders VALUES (1)")
        sender.send(topic, b"1", within=open_one.within)
        sender.send(f"{topic}-ordered", b"2", ordering_key="k", within=open_one.within)
        open_one.commit()
    assert shop.column("state") == [0, 0], "sending"
    own.start()
    wait_until(lambda: shop.column("state") == [3, 3], "both are sent")
    with ternmq.sync.connect(own.url) as client:
        assert [body for _, body in stored(client, topic)] == [b"1"]
        assert [body for _, body in stored(client, f"{topic}-ordered")] == [b"2"]


@pytest.mark.row("K3", "K5", "M7")
@pytest.mark.parametrize("key", ["", "k"])
def test_answers_that_are_lost(dev, wire, client, shop, stack, topic, key) -> None:
    """The row is tried again with the same id, its tries are counted, and it is stored once."""
    sender, outbox = outbox_of(stack, wire.url, shop, timeout=1.0, resend_after=1.0, keep_sent=3600)
    first = sender.send(topic, b"1", ordering_key=key, within=outbox)
    wait_until(lambda: shop.column("state") == [3], "the first one is sent")
    wire.lost = SEND
    with transactions.session(shop.engine, outbox) as open_one:
        second = sender.send(topic, b"2", ordering_key=key, within=open_one.within)
        open_one.commit()
    wait_until(lambda: shop.column("tries")[1] > 0, "the tries are counted")
    assert shop.column("state") == [3, 0], "sending"
    assert shop.column("error")[1], "it is written why"
    assert wire.lost_count > 0, "inconclusive: no answer was lost"
    wire.lost = 0
    wait_until(lambda: shop.column("state") == [3, 3], "it is sent")
    assert stored(client, topic) == [(first.id, b"1"), (second.id, b"2")]
    assert shop.column("tries")[1] > 0
    assert outbox.stats().duplicates == 1, "the broker had it already"
