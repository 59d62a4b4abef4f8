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
import time
from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from broker_clients import Figures, main_of, percentile

import ternmq.sync
from ternmq.reliable import Outbox, Step

TOPIC: Final = "orders"
ORDERED: Final = "ordered-orders"
_BODY: Final = b"x" * 512
_WARM_S: Final = 0.5
_CHUNK: Final = 1000


def _engine() -> sa.Engine:
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
    engine = _engine()
    return await asyncio.to_thread(_commits, engine, None, None, writer, seconds)


async def confirm(url: str, writer: int, seconds: float) -> Figures:
    """Commit transactions with a message each, until no row is left."""
    engine = _engine()
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
    engine = _engine()
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


async def backlog(url: str, count: int) -> Figures:
    """Write rows while nobody sends; then let the compensator send them all."""
    return await asyncio.to_thread(_backlog, url, count)


def _backlog(url: str, count: int) -> Figures:
    engine = _engine()
    with ternmq.sync.connect(url) as client:
        idle = Outbox(client, engine, compensate=False, resend_after=0.001)
        table = idle._table
        row = {
            "by_writer": 0, "topic": table.dialect.text(TOPIC), "queue": None,
            "message_key": table.dialect.text(""), "ordering_key": table.dialect.text(""),
            "tag": table.dialect.text(""), "content_type": table.dialect.text(""), "headers": None,
            "priority": 0, "due_ms": None, "expires_ms": None, "items": 1, "body": _BODY,
        }  # fmt: skip
        for start in range(0, count, _CHUNK // 2):
            some = [{**row, "id": b"%d" % number} for number in range(start, start + _CHUNK // 2)]
            with idle.database.writing() as work:
                work.run(*table.insertion(some))
        idle.close()
        client.send(TOPIC, _BODY)
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
        "cpu_us_each": used * 1e6 / count,
        "first_s": first,
        "memory_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024,
        "duplicates": duplicates,
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

    engine = _engine()
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
    main_of(raw, confirm, paced, backlog, idle, rapid)
