"""Passes of compensators over a SQLite file, with a broker in memory and clocks that a test moves.

Everything else is the component's own: tables, statements, decisions, passes. So a mutant of these
is found in a second, and always in the same way.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Self, cast
from unittest.mock import patch

import sqlalchemy as sa

from ternmq.client.content.message import Message, Receipt
from ternmq.reliable.database import lease as lease_module
from ternmq.reliable.database.dialect import Dialect
from ternmq.reliable.database.lease import Lease
from ternmq.reliable.database.prepare import prepare
from ternmq.reliable.libraries.alchemy import AlchemyDatabase
from ternmq.reliable.outbox import relay as relay_module
from ternmq.reliable.outbox import sending as sending_module
from ternmq.reliable.outbox.relay import Compensator, OwnRows
from ternmq.reliable.outbox.rows import Ref
from ternmq.reliable.outbox.sending import Sending, Settings
from ternmq.reliable.outbox.stats import OutboxStats
from ternmq.reliable.outbox.steps import Steps
from ternmq.reliable.outbox.table import Table
from ternmq.sync.client import Client
from ternmq.sync.loop_thread import LoopThread

START_MS: Final = 1_700_000_000_000
TOPIC: Final = "orders"

Answers = Callable[[str, Message], BaseException | None]
"""Says what the broker answers to a message; None: a receipt. Other errors end the process."""


def once(error: Exception, id_: str) -> Answers:
    """Answer an error to a message, the first time."""
    left = [id_]

    def answers(topic: str, message: Message) -> Exception | None:
        if message.id in left:
            left.remove(id_)
            return error
        return None

    return answers


class Broker:
    """A broker in memory, as the client of an outbox meets it.

    Attributes:
        stored: Ids of the messages in their order; each once, within the window.
        asked: Ids of each call, in their order.
        answers: What it answers; replaced by tests.
    """

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.asked: list[list[str]] = []
        self.answers: Answers = lambda topic, message: None
        self.thread = LoopThread()
        self.admin = self
        self._window = 0

    def close(self) -> None:
        """End its loop."""
        self.thread.stop()

    def forget(self) -> None:
        """Recognise no message any more that was stored before."""
        self._window = len(self.stored)

    def reach(self) -> tuple[LoopThread, Broker]:
        """As ``Client.reach``."""
        return self.thread, self

    async def topics(self, names: Sequence[str]) -> list[object]:
        """No topic is of durability ``fast``."""
        return []

    async def send_many(
        self, topic: str, messages: Sequence[Message], *, return_errors: bool
    ) -> list[Receipt | Exception]:
        """Store messages, or not."""
        assert return_errors
        keys = [one.ordering_key for one in messages if one.ordering_key]
        assert len(set(keys)) == len(keys), f"rows of one key are sent together: {keys}"
        self.asked.append([one.id or "" for one in messages])
        return [self._answered(topic, one) for one in messages]

    def _answered(self, topic: str, message: Message) -> Receipt | Exception:
        error = self.answers(topic, message)
        if isinstance(error, Exception):
            return error
        if error is not None:  # the process dies before the answer comes
            raise error
        id_ = message.id or ""
        duplicate = id_ in self.stored[self._window :]
        if not duplicate:
            self.stored.append(id_)
        return Receipt(topic, 0, 0, True, duplicate, 0, 0, id_)


class Passes:
    """A file with an outbox, its clock, and compensators. A context manager.

    Attributes:
        broker: Where messages go.
        ms: The database's clock; ``steady_s``, that of this machine.
    """

    def __init__(self, folder: Path) -> None:
        self.broker = Broker()
        self.ms = START_MS
        self.steady_s = 1000.0
        path = folder / "outbox.db"
        url = f"sqlite:///{path}"

        def connect() -> sqlite3.Connection:
            raw = sqlite3.connect(path, check_same_thread=False)
            raw.create_function("now_ms", 0, lambda: self.ms)
            return raw

        self.database = AlchemyDatabase(url, sa.create_engine(url, creator=connect))
        self.dialect = self.database.dialect = Dialect("sqlite", "now_ms()", last_of_many="last")
        self.table = Table(self.dialect)
        self.stats = OutboxStats()
        self.gone: list[str] = []
        self._patches = [
            patch.object(module, "steady_s", lambda: self.steady_s)
            for module in (lease_module, relay_module, sending_module)
        ]
        self._numbers = 0

    def __enter__(self) -> Self:
        for one in self._patches:
            one.start()
        prepare(self.database)
        return self

    def __exit__(self, *error: object) -> None:
        for one in self._patches:
            one.stop()
        self.database.close()
        self.broker.close()

    def pass_time(self, seconds: float) -> None:
        """Let both clocks go on."""
        self.steady_s += seconds
        self.ms += round(seconds * 1000)

    def write(
        self, *ids: str, topic: str = TOPIC, key: str = "", by_writer: bool = False, seq: int = 0,
        body: bytes = b"x",
    ) -> list[Ref]:  # fmt: skip
        """Write rows in a transaction; ``seq``: the first one has this number."""
        rows = [
            {"by_writer": int(by_writer), "id": id_.encode(), "topic": topic, "queue": None,
             "message_key": "", "ordering_key": key, "tag": "", "content_type": "",
             "headers": None, "priority": 0, "due_ms": None, "expires_ms": None, "items": 1,
             "body": body}
            for id_ in ids
        ]  # fmt: skip
        with self.database.writing() as work:
            result = work.run(*self.table.insertion(rows))
            numbers = self.table.numbers(result, len(rows))
            if seq:
                work.run(
                    "UPDATE ternmq_outbox SET seq = :seq WHERE seq = :old",
                    {"seq": seq, "old": numbers[0]},
                )
                numbers[0] = seq
        return [Ref(number, id_) for number, id_ in zip(numbers, ids, strict=True)]

    def left(self) -> list[str]:
        """Return the ids of the rows that are there, by number."""
        with self.database.reading() as work:
            found = work.run("SELECT id FROM ternmq_outbox ORDER BY seq", {}).rows
        return [bytes(id_).decode() for (id_,) in found]

    def states(self) -> dict[str, tuple[int, int]]:
        """Return state and tries of each row."""
        with self.database.reading() as work:
            found = work.run("SELECT id, state, tries FROM ternmq_outbox ORDER BY seq", {}).rows
        return {bytes(id_).decode(): (state, tries) for id_, state, tries in found}

    def _sending(self, **settings: Any) -> Sending:
        given = {"resend_after": 10.0, "poll": 0.1, "attempts": 5, "keep_sent": None, **settings}
        client = cast("Client", SimpleNamespace(reach=self.broker.reach))
        return Sending(
            self.database, self.table, client, Settings(compensate=True, **given), Steps(),
            self.stats, lambda refs: self.gone.extend(ref.id for ref in refs),
        )  # fmt: skip

    def compensator(self, holder: str = "one", **settings: Any) -> Compensator:
        """Return a compensator that does not lead yet."""
        lease = Lease(self.dialect, "compensator", holder=holder)
        return Compensator(self._sending(**settings), lease)

    def own_rows(self, **settings: Any) -> OwnRows:
        """Return what sends the rows of a process."""
        return OwnRows(self._sending(**settings))
