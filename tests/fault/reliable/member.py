"""A process of the application: writes orders, and compensates or not; it may stop at a step.

It writes lines of JSON to its file; what it rolled back is synced there. SIGTERM ends it properly.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final
from unittest.mock import patch

import msgspec
import sqlalchemy as sa

import ternmq.sync
from ternmq.reliable import Outbox, Step
from ternmq.reliable.database.lease import Lease
from ternmq.reliable.outbox import threads as outbox_threads
from tests.fault.reliable import shop
from tests.fault.reliable.shop import Order, RolledBackError

_RENEWED: Final = 0.3
"""Share of a lease after which it is renewed, as in the component."""


class Orders(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a member does.

    Attributes:
        name: Of the member; its orders are ``NAME-0``, ``NAME-1``, ...
        file: What it writes.
        database: URL.
        broker: URL.
        topic: See ``shop``.
        count: How many transactions; 0: it writes none.
        threads: Of the application.
        accounts: How many of them it uses.
        account: The only one that it uses; empty: ``a0``, ``a1``, ...
        seed: Of its choices.
        held: Share of the transactions that stay open for up to ``hold_s``.
        undone: Share with a savepoint that is rolled back.
        rolled_back: Share that is rolled back.
        pause_s: Pause after each transaction.
        compensate: See ``Outbox``.
        resend_after: See ``Outbox``.
        lease_s: Length of the lease of the compensator; 0: as the component has it.
        timeout: Of the client.
        stop_at: Step at which it stops itself; empty: none.
        stop_number: How often the step comes before.
    """

    name: str
    file: str
    database: str
    broker: str
    topic: str
    count: int = 0
    threads: int = 1
    accounts: int = 4
    account: str = ""
    seed: int = 0
    held: float = 0.0
    hold_s: float = 0.0
    undone: float = 0.0
    rolled_back: float = 0.0
    pause_s: float = 0.0
    compensate: bool = True
    resend_after: float = 1.0
    lease_s: float = 0.0
    timeout: float = 10.0
    stop_at: str = ""
    stop_number: int = 1


class Notes:
    """The file of a member. Callable from any thread."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(self, what: str, *, synced: bool = False, **more: object) -> None:
        """Write a line, with the time by the clock that all processes have in common."""
        line = {"what": what, "at": round(time.monotonic(), 3), **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")
        if synced:
            os.fdatasync(self._file)


class Stopper:
    """Stops the process at a step."""

    def __init__(self, notes: Notes, step: str, number: int) -> None:
        self._notes = notes
        self._step = step
        self._left = number

    def at(self, step: str) -> None:
        """Note a step; stop if it is the one."""
        if step != self._step:
            return
        self._left -= 1
        if self._left == 0:
            self._notes.say("stopped", step=step, thread=threading.current_thread().name)
            # To this thread: it must not do more, and the others stop with it.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def observe(self, step: Step, ids: Sequence[str]) -> None:
        """Note a step of the component. Its ``commit`` comes when the transaction is over."""
        del ids
        if step not in {Step.BEGIN, Step.WORK}:  # those the application tells
            self.at("committed" if step is Step.COMMIT else step.value)


class Member:
    """A member at work."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._notes = Notes(Path(orders.file))
        self._stopper = Stopper(self._notes, orders.stop_at, orders.stop_number)
        self._engine = shop.engine_of(orders.database, orders.threads)
        self._chance = random.Random(orders.seed)
        self._numbers = iter(range(orders.count))
        self._lock = threading.Lock()
        self._ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._ended.set())
        self._notes.say("started")

    def run(self) -> None:
        """Work until SIGTERM."""
        orders = self._orders
        client = ternmq.sync.connect(orders.broker, timeout=orders.timeout)
        outbox = Outbox(
            client, self._engine, compensate=orders.compensate, resend_after=orders.resend_after
        )
        outbox.observe(self._stopper.observe)
        with lease_of(orders.lease_s):
            outbox.start()
        writers = [
            threading.Thread(target=self._write, args=(client,), name=f"writer-{number}")
            for number in range(orders.threads if orders.count else 0)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        self._notes.say("done")
        self._ended.wait()
        outbox.close()
        client.close(0)
        self._engine.dispose()
        stats = outbox.stats()
        self._notes.say(
            "ended", name=orders.name, written=stats.written, sent=stats.sent, resent=stats.resent,
            duplicates=stats.duplicates, failed=stats.failed, refused=stats.refused,
        )  # fmt: skip

    def _write(self, client: ternmq.sync.Client) -> None:
        while not self._ended.is_set():
            with self._lock:
                number = next(self._numbers, None)
                order = None if number is None else self._order(number)
            if order is None:
                return
            try:
                shop.do(client, self._engine, self._orders.topic, order, self._stopper.at)
            except RolledBackError:
                self._notes.say("rolled back", synced=True, ids=[order.id, order.undone])
            except sa.exc.DBAPIError as error:
                self._notes.say("unknown", id=order.id, error=str(error.orig))
                self._wait_for_database()
            else:
                self._notes.say("committed", id=order.id)
            if order.undone and not order.rolled_back:
                self._notes.say("rolled back", synced=True, ids=[order.undone])
            if self._orders.pause_s:
                self._ended.wait(self._orders.pause_s)

    def _order(self, number: int) -> Order:
        chance, orders = self._chance.random, self._orders
        id_ = f"{orders.name}-{number}"
        return Order(
            id_,
            orders.account or f"a{self._chance.randrange(orders.accounts)}",
            chance() * orders.hold_s if chance() < orders.held else 0.0,
            f"{id_}-undone" if chance() < orders.undone else "",
            chance() < orders.rolled_back,
        )

    def _wait_for_database(self) -> None:
        while not self._ended.wait(0.05):
            try:
                with self._engine.connect() as connection:
                    connection.exec_driver_sql("SELECT 1")
            except sa.exc.DBAPIError:
                continue
            return


def lease_of(seconds: float) -> ExitStack:
    """Have the outbox that starts meanwhile take a shorter lease: tests wait for its end."""
    stack = ExitStack()
    if seconds:
        stack.enter_context(patch.object(outbox_threads, "Lease", partial(Lease, seconds=seconds)))
        # It is read as long as the process lives.
        patch.object(outbox_threads, "RENEW_S", seconds * _RENEWED).start()
    return stack
