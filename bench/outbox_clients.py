"""The applications of the measurement of the outbox: each verb is a process of its own.

    TERNMQ_BENCH_DATABASE=URL python bench/outbox_clients.py VERB URL [name=number ...]

prints one JSON object of figures. Times are the wall clock's: what a user waits for. An application
is blocking, in one thread, with SQLAlchemy: a business row and, where it sends, a message of 512
bytes in each transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sqlite3
import sys
import time
from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from broker_clients import Figures, main_of, percentile

import ternmq.sync
from ternmq.reliable import Outbox, Step
from ternmq.reliable.outbox.table import Table

TOPIC: Final = "orders"
ORDERED: Final = "ordered-orders"
_BODY: Final = b"x" * 512
_WARM_S: Final = 0.5
_LONE: Final = 200
_KEYS: Final = 1000
_BLOCKED: Final = "blocked-orders"
_AT_ONCE: Final = 50_000
_AWAY_S: Final = 10.0
"""How long the broker is away at least, while rows wait."""


def engine_of() -> sa.Engine:
    """Return an engine of the database that is measured."""
    engine = sa.create_engine(os.environ["TERNMQ_BENCH_DATABASE"])
    if engine.dialect.name == "sqlite":

        @sa.event.listens_for(engine, "connect")
        def connected(raw: sqlite3.Connection, record: object) -> None:
            del record
            raw.isolation_level = None
            raw.execute("PRAGMA synchronous=FULL")
            raw.execute("PRAGMA busy_timeout=20000")

        @sa.event.listens_for(engine, "begin")
        def begun(connection: sa.Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


_INSERT: Final = sa.text("INSERT INTO orders (id, cents) VALUES (:id, 500)")


def _numbers(writer: int) -> Sequence[int]:
    return range(writer * 10_000_000, (writer + 1) * 10_000_000)


async def raw(url: str, writer: int, seconds: float) -> Figures:
    """Commit transactions without a message."""
    del url
    engine = engine_of()
    return await asyncio.to_thread(_commits, engine, None, None, writer, seconds)


async def confirm(url: str, writer: int, seconds: float) -> Figures:
    """Commit transactions with a message each, until no row is left."""
    engine = engine_of()
    with ternmq.sync.connect(url) as client, Outbox(client, engine) as outbox:
        await asyncio.to_thread(_commits, engine, client, outbox, writer + 50, 0.5)
        return await asyncio.to_thread(_commits, engine, client, outbox, writer, seconds)


def _commits(
    engine: sa.Engine,
    client: ternmq.sync.Client | None,
    outbox: Outbox | None,
    writer: int,
    seconds: float,
) -> Figures:
    taken: list[float] = []
    began = time.perf_counter()
    for number in _numbers(writer):
        at = time.perf_counter()
        if at - began > seconds:
            break
        with engine.begin() as connection:
            connection.execute(_INSERT, {"id": number})
            if client is not None:
                client.send(TOPIC, _BODY, within=connection)
        taken.append(time.perf_counter() - at)
    committed = time.perf_counter() - began
    if outbox is not None:
        outbox.flush(60)
    return {
        "transactions": len(taken),
        "committed_s": committed,
        "all_s": time.perf_counter() - began,
        "commit_p50_ms": percentile(taken, 0.5) * 1e3,
        "commit_p99_ms": percentile(taken, 0.99) * 1e3,
    }


async def paced(url: str, rate: int, seconds: float, ordered: int) -> Figures:
    """Commit so many transactions a second; measure from the commit to the broker's answer."""
    return await asyncio.to_thread(_paced, url, rate, seconds, ordered)


def _paced(url: str, rate: int, seconds: float, ordered: int) -> Figures:
    engine = engine_of()
    answered: dict[str, float] = {}
    committed: dict[str, float] = {}

    def observe(step: Step, ids: Sequence[str]) -> None:
        if step is Step.RESPONSE:
            answered.update(dict.fromkeys(ids, time.perf_counter()))

    with ternmq.sync.connect(url) as client, Outbox(client, engine) as outbox:
        if ordered:
            with contextlib.suppress(ternmq.TopicExists):
                client.admin.create_topic(ORDERED, ordered=True)
        client.send(ORDERED if ordered else TOPIC, _BODY, within=outbox,
                    ordering_key="k" if ordered else "")  # fmt: skip
        outbox.flush(30)
        outbox.observe(observe)
        began = time.perf_counter()
        for number in range(round(rate * seconds)):
            time.sleep(max(0.0, began + number / rate - time.perf_counter()))
            with engine.begin() as connection:
                connection.execute(_INSERT, {"id": 900_000_000 + number})
                receipt = client.send(
                    ORDERED if ordered else TOPIC, _BODY, within=connection,
                    ordering_key=f"k{number % 100}" if ordered else "",
                )  # fmt: skip
            committed[receipt.id] = time.perf_counter()
        outbox.flush(30)
        stats = outbox.stats()
    taken = [answered[id_] - at for id_, at in committed.items()]
    return {
        "stored_p50_ms": percentile(taken, 0.5) * 1e3,
        "stored_p99_ms": percentile(taken, 0.99) * 1e3,
        "duplicates": stats.duplicates,
    }


async def backlog(url: str, count: int, keys: int) -> Figures:
    """Write rows while nobody sends; then let the compensator send them all.

    Args:
        url: Of the broker.
        count: How many rows.
        keys: How many ordering keys they have, in turns; 0: none.
    """
    return await asyncio.to_thread(_backlog, url, count, keys)


def _backlog(url: str, count: int, keys: int) -> Figures:
    engine = engine_of()
    with ternmq.sync.connect(url) as client:
        topic = ORDERED if keys else TOPIC
        if keys:
            with contextlib.suppress(ternmq.TopicExists):
                client.admin.create_topic(topic, ordered=True)
        lone = _lone(client, topic, ordered=keys > 0)
        with Outbox(client, engine, compensate=False) as idle:
            _insert(engine, idle._table, topic, range(count), keys)
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        cpu, began = time.process_time(), time.perf_counter()
        with Outbox(client, engine) as outbox:
            first = 0.0
            while outbox.stats().resent < count:
                if not first and outbox.stats().resent:
                    first = time.perf_counter() - began
                time.sleep(0.005)
            taken = time.perf_counter() - began
            used = time.process_time() - cpu
            duplicates = outbox.stats().duplicates
    return {
        "rows_per_s": count / taken,
        "lone_per_s": lone,
        "times_lone": count / taken / lone,
        "cpu_us_each": used * 1e6 / count,
        "first_s": first,
        "memory_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024,
        "duplicates": duplicates,
    }


async def away(url: str, count: int) -> Figures:
    """Begin while the broker is away; a line comes when it is back.

    Args:
        url: Of the broker.
        count: How many rows wait.
    """
    return await asyncio.to_thread(_away, url, count)


def _away(url: str, count: int) -> Figures:
    engine = engine_of()
    client = ternmq.sync.connect(url)  # a block would connect
    with contextlib.closing(client):
        with Outbox(client, engine, compensate=False) as idle:
            for first in range(0, count, _AT_ONCE):
                _insert(engine, idle._table, TOPIC, range(first, min(first + _AT_ONCE, count)), 0)
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with Outbox(client, engine) as outbox:
            outbox.start()
            time.sleep(_AWAY_S)
            print("ready", flush=True)
            sys.stdin.readline()
            began = time.perf_counter()
            while not outbox.stats().resent:
                time.sleep(0.001)
            first_s = time.perf_counter() - began
            while outbox.stats().resent < count // 10:
                time.sleep(0.01)
    return {
        "first_s": first_s,
        "memory_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024,
    }


def _lone(client: ternmq.sync.Client, topic: str, *, ordered: bool) -> float:
    """Return how many messages a second are sent one after the other, each when it is stored."""
    client.send(topic, _BODY, ordering_key="lone" if ordered else "")
    began = time.perf_counter()
    for _ in range(_LONE):
        client.send(topic, _BODY, ordering_key="lone" if ordered else "")
    return _LONE / (time.perf_counter() - began)


def _insert(
    engine: sa.Engine, table: Table, topic: str, numbers: Sequence[int], keys: int, queue: int = -1
) -> None:
    """Insert rows that the compensator sends, in one transaction."""
    text = table.dialect.text
    row: dict[str, object] = {
        "by_writer": 0, "topic": text(topic), "queue": None if queue < 0 else queue,
        "message_key": text(""), "tag": text(""), "content_type": text(""), "priority": 0,
        "items": 1, "body": _BODY,
        "written_ms": time.time_ns() // 1_000_000,
    }  # fmt: skip
    columns = [*row, "id", "ordering_key"]
    places = ", ".join([f":{column}" for column in columns])
    statement = f"INSERT INTO {{outbox}} ({', '.join(columns)}) VALUES ({places})"
    rows = [
        {**row, "id": b"%s-%d" % (topic.encode(), number),
         "ordering_key": text(f"k{number % keys}" if keys else "")}
        for number in numbers
    ]  # fmt: skip
    with engine.begin() as connection:
        connection.execute(sa.text(table.fill(statement)), rows)


async def blocked(url: str, count: int, others: int) -> Figures:
    """Compare rows that go beside ``count`` rows of a blocked key with such that go alone."""
    return await asyncio.to_thread(_blocked, url, count, others)


def _blocked(url: str, count: int, others: int) -> Figures:
    engine = engine_of()
    with ternmq.sync.connect(url) as client:
        for topic in (ORDERED, _BLOCKED):
            with contextlib.suppress(ternmq.TopicExists):
                client.admin.create_topic(topic, ordered=True)
        with Outbox(client, engine) as outbox:
            table = outbox._table

            def took(numbers: Sequence[int]) -> float:
                before = outbox.stats().resent
                _insert(engine, table, ORDERED, numbers, _KEYS)
                began = time.perf_counter()
                while outbox.stats().resent < before + len(numbers):
                    time.sleep(0.005)
                return time.perf_counter() - began

            took(range(1_000))
            alone = took(range(10**6, 10**6 + others))
            # Queue 7 does not exist: the first row is refused, and then it has failed.
            _insert(engine, table, _BLOCKED, range(count), 1, queue=7)
            began = time.perf_counter()
            held = sa.text("SELECT count(*) FROM ternmq_outbox WHERE state = 1")
            while True:
                with engine.connect() as connection:
                    if connection.execute(held).scalar_one() == count - 1:
                        break
                time.sleep(0.05)
            held_s = time.perf_counter() - began
            beside = took(range(2 * 10**6, 2 * 10**6 + others))
            _insert(engine, table, _BLOCKED, range(count, 2 * count), 1, queue=7)
            meanwhile = took(range(3 * 10**6, 3 * 10**6 + others))
    return {
        "alone_per_s": others / alone,
        "beside_per_s": others / beside,
        "share": alone / beside,
        "behind_per_s": others / meanwhile,
        "held_per_s": count / held_s,
    }


async def idle(url: str, seconds: float) -> Figures:
    """Lead and do nothing."""
    return await asyncio.to_thread(_idle, url, seconds)


def _idle(url: str, seconds: float) -> Figures:
    statements = 0

    @sa.event.listens_for(sa.Engine, "before_cursor_execute")
    def count(*_: object) -> None:
        nonlocal statements
        statements += 1

    engine = engine_of()
    with ternmq.sync.connect(url) as client, Outbox(client, engine) as outbox:
        while not outbox.stats().leader:
            time.sleep(0.01)
        time.sleep(_WARM_S)
        statements, cpu, began = 0, time.process_time(), time.perf_counter()
        time.sleep(seconds)
        taken = time.perf_counter() - began
        return {
            "core_share": (time.process_time() - cpu) / taken,
            "statements_per_s": statements / taken,
        }


async def rapid(url: str, writer: int, seconds: float) -> Figures:
    """Send without an answer, as fast as it goes, then wait until all are stored."""
    del writer
    return await asyncio.to_thread(_rapid, url, seconds)


def _rapid(url: str, seconds: float) -> Figures:
    with ternmq.sync.connect(url) as client:
        client.send(TOPIC, _BODY)
        began, sent = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            try:
                for _ in range(100):
                    client.send_oneway(TOPIC, _BODY)
                    sent += 1
            except ternmq.BufferFull:
                time.sleep(0.001)
        client.flush()
        return {"messages_per_s": sent / (time.perf_counter() - began)}


if __name__ == "__main__":
    main_of(raw, confirm, paced, backlog, away, blocked, idle, rapid)
