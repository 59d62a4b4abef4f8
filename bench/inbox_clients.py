"""The consumers of the measurement of inboxes: each verb is a process of its own.

    TERNMQ_BENCH_DATABASE=URL python bench/inbox_clients.py VERB URL [name=number ...]

prints one JSON object of figures.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import sqlalchemy as sa
from broker_clients import Figures, main_of
from outbox_clients import engine_of

import ternmq
import ternmq.sync
from ternmq.reliable import Inbox, idempotent

_BODY: Final = b"x" * 100
_ROUNDS: Final = 2
"""Each handler runs so often, in turns; the better one counts."""
_INSERT: Final = sa.text("INSERT INTO orders (id, cents) VALUES (:id, 500)")
Handle = Callable[..., None]


async def effects(url: str, count: int) -> Figures:
    """Compare a handler whose business row is written with an inbox, and without."""
    return await asyncio.to_thread(_effects, url, count)


def _effects(url: str, count: int) -> Figures:
    engine = engine_of()
    numbers = itertools.count(1)

    def own(body: bytes) -> None:
        del body
        with engine.begin() as connection:
            connection.execute(_INSERT, {"id": next(numbers)})

    def once(body: bytes, connection: sa.Connection) -> None:
        del body
        connection.execute(_INSERT, {"id": next(numbers)})

    at_once = 1 if engine.dialect.name == "sqlite" else 4
    return _compared(url, count, at_once, own, idempotent(Inbox(engine))(once))


async def memory(url: str, count: int) -> Figures:
    """Compare a handler that does nothing, with an inbox in memory and without."""
    return await asyncio.to_thread(_memory, url, count)


def _memory(url: str, count: int) -> Figures:
    def nothing(body: bytes) -> None:
        del body

    def once(body: bytes) -> None:
        del body

    return _compared(url, count, 4, nothing, idempotent(Inbox.memory(2 * count))(once))


def _compared(url: str, count: int, at_once: int, plain: Handle, once: Handle) -> Figures:
    found: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(_ROUNDS):
        for with_inbox in (turn % 2 == 0, turn % 2 == 1):
            handle = once if with_inbox else plain
            found[with_inbox].append(
                _consumed(url, f"t{turn}-{with_inbox}", count, at_once, handle)
            )
    own, inbox = max(found[False]), max(found[True])
    return {"own_per_s": own, "inbox_per_s": inbox, "share": inbox / own}


def _consumed(url: str, topic: str, count: int, at_once: int, handle: Handle) -> float:
    """Return how many messages a second a handler takes, until all are acked."""
    with ternmq.sync.connect(url) as sender:
        messages: Sequence[Any] = [ternmq.Message(_BODY, id=f"m-{n}") for n in range(count)]
        sender.send_many(topic, messages)
    client = ternmq.sync.connect(url)
    client.handler(topic, group="bench", concurrency=at_once)(handle)
    with ternmq.sync.connect(url) as watcher:

        def done() -> None:
            while True:
                groups = watcher.admin.groups(topic)
                if groups and groups[0].queues[0].floor == count:
                    break
                time.sleep(0.002)
            client.stop()

        watching = threading.Thread(target=done)
        began = time.perf_counter()
        watching.start()
        client.run(signals=False)
        watching.join()
        return count / (time.perf_counter() - began)


if __name__ == "__main__":
    main_of(effects, memory)
