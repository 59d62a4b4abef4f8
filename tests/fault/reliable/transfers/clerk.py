"""A process of the bank: the teller, who asks for transfers, or a stage.

It writes lines of JSON to its file; what it rolls back, and that it kills itself, is synced there.
SIGTERM ends it properly. A stage that gets SIGUSR1 kills itself when it has committed and before
the message is acked; SIGUSR2: when it has changed and sent all, and before the commit.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import random
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import ternmq
import ternmq.sync
from ternmq.reliable import Inbox, Outbox, idempotent
from tests.fault.reliable import shop
from tests.fault.reliable.member import Notes, lease_of
from tests.fault.reliable.shop import RolledBackError
from tests.fault.reliable.transfers import bank
from tests.fault.reliable.transfers.bank import ASK, CREDIT, STAGES, Stage, Transfer

AFTER: Final = "after the commit"
BEFORE: Final = "before the commit"
SIGNALS: Final = {AFTER: signal.SIGUSR1, BEFORE: signal.SIGUSR2}
"""Where a stage can be told to kill itself -> by which signal."""
_RETRY: Final = ternmq.RetryPolicy(first=0.05, cap=2.0, attempts=1000)
"""No transfer is given up: the database may be away."""
_AWAITED: Final = {"sqlite": "sqlite+aiosqlite", "mysql": "mysql+aiomysql"}


class Duty(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a clerk does.

    Attributes:
        name: Of the clerk; ids and tokens begin with it.
        file: What it writes.
        database: URL.
        broker: URL.
        topic: Topics begin with it.
        role: ``ask``, or the name of a stage.
        accounts: How many there are.
        seed: Of its choices.
        rolled_back: Share of its transactions that are rolled back at their end.
        pause_s: Of the teller, after each transfer.
        concurrency: Of the handlers of a stage.
        lease_s: Length of the compensator's lease.
    """

    name: str
    file: str
    database: str
    broker: str
    topic: str
    role: str
    accounts: int
    seed: int = 0
    rolled_back: float = 0.05
    pause_s: float = 0.01
    concurrency: int = 4
    lease_s: float = 2.0


class Clerk:
    """A clerk at work."""

    def __init__(self, duty: Duty) -> None:
        self._duty = duty
        self._notes = Notes(Path(duty.file))
        self._chance = random.Random(duty.seed)
        self._tokens = itertools.count()
        self._dies = ""
        self._ran: dict[str, str] = {}
        """Deliveries whose handler ran to its end -> the token of the transaction."""
        for where, number in SIGNALS.items():
            signal.signal(number, functools.partial(self._arm, where))

    def run(self) -> None:
        """Work until SIGTERM."""
        if self._duty.role == ASK.name:
            self._ask()
            return
        [stage] = [one for one in STAGES if one.name == self._duty.role]
        if stage is CREDIT:
            asyncio.run(self._serve_awaited(stage))
        else:
            self._serve(stage)

    # -- the teller -------------------------------------------------------------------------------

    def _ask(self) -> None:
        duty, over = self._duty, threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: over.set())
        engine = shop.engine_of(duty.database)
        client = ternmq.sync.connect(duty.broker)
        outbox = Outbox(client, engine, resend_after=1.0)
        with lease_of(duty.lease_s):
            outbox.start()
        self._notes.say("started")
        for number in itertools.count():
            if over.wait(duty.pause_s):
                break
            self._ask_for(client, engine, f"{duty.name}-{number}")
        outbox.close()
        client.close(0)
        engine.dispose()
        self._say_end(outbox)

    def _ask_for(self, client: ternmq.sync.Client, engine: sa.Engine, id_: str) -> None:
        source, target = self._chance.sample(bank.names(self._duty.accounts), 2)
        sent = Transfer(id_, source, target, self._chance.randint(1, 500), self._token())
        topic, more = bank.sending(ASK, self._duty.topic, sent)
        try:
            with Session(engine) as session, session.begin():
                for statement in bank.changes(ASK, sent, sent.token):
                    session.execute(statement)
                client.send(topic, sent, id=id_, within=session, **more)
                self._end(sent.token)
        except RolledBackError:
            pass
        except sa.exc.DBAPIError as error:
            self._notes.say("unknown", id=id_, error=str(error.orig))
        else:
            self._notes.say("committed", token=sent.token)

    # -- stages -----------------------------------------------------------------------------------

    def _serve(self, stage: Stage) -> None:
        duty = self._duty
        engine = shop.engine_of(duty.database, duty.concurrency)
        client = ternmq.sync.connect(duty.broker)
        outbox, inbox = Outbox(client, engine, resend_after=1.0), Inbox(engine)

        @client.handler_middleware
        def around(delivery: ternmq.sync.Delivery) -> Iterator[None]:
            try:
                yield
            except BaseException:
                self._ran.pop(delivery.id, None)
                raise
            self._committed(delivery.id)

        @client.handler(
            f"{duty.topic}-{stage.takes}", group=stage.name, concurrency=duty.concurrency,
            lease=2.0, retry=_RETRY,
        )  # fmt: skip
        @idempotent(inbox)
        def work(transfer: Transfer, delivery: ternmq.sync.Delivery, session: Session) -> None:
            token = self._token()
            for statement in bank.changes(stage, transfer, token):
                session.execute(statement)
            version = session.execute(bank.version_of(transfer.source)).scalar_one()
            sent = self._sent(stage, transfer, token, version)
            topic, more = bank.sending(stage, duty.topic, sent)
            client.send(topic, sent, **more)
            self._end(token, delivery.id)

        signal.signal(signal.SIGTERM, lambda *_: client.stop())
        with lease_of(duty.lease_s):
            outbox.start()
        self._notes.say("started")
        client.run(signals=False)
        outbox.close()
        inbox.close()
        engine.dispose()
        self._say_end(outbox, inbox)

    async def _serve_awaited(self, stage: Stage) -> None:
        duty = self._duty
        engine = _awaited_engine(duty.database)
        client = ternmq.connect(duty.broker)
        outbox, inbox = Outbox(client, engine, resend_after=1.0), Inbox(engine)

        @client.handler_middleware
        async def around(delivery: ternmq.Delivery) -> AsyncIterator[None]:
            try:
                yield
            except BaseException:
                self._ran.pop(delivery.id, None)
                raise
            self._committed(delivery.id)

        @client.handler(
            f"{duty.topic}-{stage.takes}", group=stage.name, concurrency=duty.concurrency,
            lease=2.0, retry=_RETRY,
        )  # fmt: skip
        @idempotent(inbox)
        async def work(
            transfer: Transfer, delivery: ternmq.Delivery, session: AsyncSession
        ) -> None:
            token = self._token()
            for statement in bank.changes(stage, transfer, token):
                await session.execute(statement)
            sent = self._sent(stage, transfer, token, transfer.version)
            topic, more = bank.sending(stage, duty.topic, sent)
            await client.send(topic, sent, **more)
            self._end(token, delivery.id)

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, client.stop)
        with lease_of(duty.lease_s):
            outbox.start()
        self._notes.say("started")
        await client.run(signals=False)
        await asyncio.to_thread(outbox.close)
        await asyncio.to_thread(inbox.close)
        await engine.dispose()
        self._say_end(outbox, inbox)

    # -- all of them ------------------------------------------------------------------------------

    def _token(self) -> str:
        return f"{self._duty.name}:{next(self._tokens)}"

    @staticmethod
    def _sent(stage: Stage, transfer: Transfer, token: str, version: int) -> Transfer:
        kept = version if stage.ordered else transfer.version
        return msgspec.structs.replace(transfer, token=token, version=kept)

    def _end(self, token: str, delivery: str = "") -> None:
        """Be at the end of a transaction: it is rolled back, or this process dies, or it goes on.

        Raises:
            RolledBackError: The first of these.
        """
        if self._chance.random() < self._duty.rolled_back:
            self._notes.say("rolled back", synced=True, token=token)
            raise RolledBackError
        self._die(BEFORE, token)
        if delivery:
            self._ran[delivery] = token

    def _committed(self, delivery: str) -> None:
        """Be between the commit and the ack; of a message that was known there was no commit."""
        token = self._ran.pop(delivery, "")
        if not token:
            self._notes.say("known")
            return
        self._notes.say("committed", token=token)
        self._die(AFTER, token)

    def _arm(self, where: str, *_: Any) -> None:
        self._dies = where

    def _die(self, where: str, token: str) -> None:
        if self._dies == where:
            self._notes.say("dies", synced=True, where=where, token=token)
            os.kill(os.getpid(), signal.SIGKILL)

    def _say_end(self, outbox: Outbox, inbox: Inbox | None = None) -> None:
        stats = outbox.stats()
        found = {} if inbox is None else {
            one: getattr(inbox.stats(), one)
            for one in ("handled", "suppressed", "waited", "retried")
        }  # fmt: skip
        self._notes.say(
            "ended", name=self._duty.name, role=self._duty.role, sent=stats.sent,
            resent=stats.resent, duplicates=stats.duplicates, failed=stats.failed, **found,
        )  # fmt: skip


def _awaited_engine(url: str) -> AsyncEngine:
    made = sa.make_url(url)
    name = made.get_backend_name()
    return create_async_engine(
        made.set(drivername=_AWAITED.get(name, made.drivername)), pool_pre_ping=True
    )
