"""The business: orders that belong to an account, whose row is locked first.

Each order raises the version of its account, is a row of ``orders``, and tells of itself in two
messages of one id: to ``TOPIC``, with the account as ordering key, and to ``TOPIC-plain``, without.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Session

import ternmq.sync

METADATA = sa.MetaData()
ACCOUNTS = sa.Table(
    "accounts", METADATA,
    sa.Column("name", sa.String(32), primary_key=True), sa.Column("version", sa.Integer),
)  # fmt: skip
ORDERS = sa.Table(
    "orders", METADATA,
    sa.Column("id", sa.String(64), primary_key=True), sa.Column("name", sa.String(32)),
    sa.Column("version", sa.Integer),
)  # fmt: skip


class RolledBackError(Exception):
    """Ends a transaction that is to be rolled back."""


def engine_of(url: str, connections: int = 5) -> sa.Engine:
    """Return an engine as an application has one; its SQLite transactions begin IMMEDIATE."""
    engine = sa.create_engine(url, pool_size=connections, max_overflow=2, pool_pre_ping=True)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def _connected(raw: Any, record: object) -> None:
            raw.isolation_level = None

        @event.listens_for(engine, "begin")
        def _begun(connection: sa.Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def make(engine: sa.Engine, accounts: int) -> None:
    """Make the tables of the business, and accounts ``a0``, ``a1``, ..."""
    METADATA.create_all(engine)
    with engine.begin() as connection:
        rows = [{"name": f"a{number}", "version": 0} for number in range(accounts)]
        connection.execute(sa.insert(ACCOUNTS), rows)


@dataclass(slots=True, frozen=True)
class Order:
    """A transaction to do.

    Attributes:
        id: Of the order, and of its messages.
        account: Whose row is locked.
        hold_s: How long the transaction stays open after its work.
        undone: A savepoint with a message, of this id, is rolled back in it; empty: none.
        rolled_back: It is rolled back at its end.
    """

    id: str
    account: str
    hold_s: float = 0.0
    undone: str = ""
    rolled_back: bool = False


def do(
    client: ternmq.sync.Client,
    engine: sa.Engine,
    topic: str,
    order: Order,
    at: Callable[[str], None],
) -> None:
    """Do a transaction; ``at`` is called with ``begin``, ``work`` and ``commit`` before the commit.

    Raises:
        RolledBackError: It was rolled back, as it is to be.
        DBAPIError: Of the database; if it is of the commit, nobody knows.
    """
    with Session(engine) as session, session.begin():
        asked = sa.select(ACCOUNTS.c.version).where(ACCOUNTS.c.name == order.account)
        version = session.execute(asked.with_for_update()).scalar_one() + 1
        at("begin")
        session.execute(
            sa.update(ACCOUNTS).where(ACCOUNTS.c.name == order.account).values(version=version)
        )
        session.execute(sa.insert(ORDERS).values(id=order.id, name=order.account, version=version))
        at("work")
        body = {"id": order.id, "account": order.account, "version": version}
        client.send(topic, body, id=order.id, ordering_key=order.account, within=session)
        client.send(f"{topic}-plain", body, id=order.id, within=session)
        if order.undone:
            with session.begin_nested() as inner:
                wrong = {**body, "id": order.undone}
                client.send(
                    topic, wrong, id=order.undone, ordering_key=order.account, within=session
                )
                client.send(f"{topic}-plain", wrong, id=order.undone, within=session)
                inner.rollback()
        if order.hold_s:
            threading.Event().wait(order.hold_s)  # an application that takes its time
        if order.rolled_back:
            raise RolledBackError
        at("commit")


def committed(engine: sa.Engine) -> dict[str, tuple[str, int]]:
    """Return the orders that are in the business table: id -> account and version."""
    with engine.connect() as connection:
        found = connection.execute(sa.select(ORDERS.c.id, ORDERS.c.name, ORDERS.c.version))
        return {id_: (name, version) for id_, name, version in found}


def rows_left(engine: sa.Engine) -> int:
    """Return how many rows the outbox has."""
    with engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM ternmq_outbox").scalar_one())


def said(body: bytes) -> tuple[str, str, int]:
    """Return id, account and version of a message."""
    found = json.loads(body)
    return found["id"], found["account"], found["version"]
