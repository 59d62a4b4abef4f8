"""Databases for inboxes, and messages that no broker has delivered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from ternmq.client.consumer.delivery import Delivery
from ternmq.client.handler.blocking import BlockingDelivery

TABLES: Final = ("outbox", "lease", "inbox", "schema")


class Message(BlockingDelivery):
    """A message for handlers in threads."""

    def __init__(self, id_: str, attempt: int = 1) -> None:
        self._id = id_
        self._attempt = attempt

    topic = property(lambda self: "orders")
    group = property(lambda self: "billing")
    id = property(lambda self: f"p:{self._id}")
    application_id = property(lambda self: self._id)
    attempt = property(lambda self: self._attempt)

    def __repr__(self) -> str:
        return f"<Message {self._id}>"


class AwaitedMessage(Delivery):
    """A message for handlers that are awaited."""

    def __init__(self, id_: str, attempt: int = 1) -> None:
        self._message = Message(id_, attempt)

    topic = property(lambda self: "orders")
    group = property(lambda self: "billing")
    id = property(lambda self: self._message.id)
    application_id = property(lambda self: self._message.application_id)
    attempt = property(lambda self: self._message.attempt)

    def __repr__(self) -> str:
        return repr(self._message)


@contextmanager
def shop(url: str) -> Iterator[sa.Engine]:
    """Return an engine of a database with a table ``effects``, and none of ours."""
    engine = sa.create_engine(url, pool_size=20)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE IF EXISTS effects")
            for table in TABLES:
                connection.exec_driver_sql(f"DROP TABLE IF EXISTS ternmq_{table}")
            kind = " ENGINE=InnoDB" if engine.dialect.name == "mysql" else ""
            connection.exec_driver_sql(f"CREATE TABLE effects (id VARCHAR(40), n INTEGER){kind}")
        yield engine
    finally:
        engine.dispose()


def sqlite(folder: Path, name: str = "shop") -> str:
    """Return the URL of a database in a file."""
    return f"sqlite:///{folder}/{name}.db"


def effects(engine: sa.Engine) -> list[str]:
    """Return the ids of all effects, sorted."""
    with engine.connect() as connection:
        return sorted(connection.exec_driver_sql("SELECT id FROM effects").scalars())


def remembered(engine: sa.Engine) -> list[tuple[str, str]]:
    """Return (consumer, id) of each row of the inbox, sorted."""

    def text(value: str | bytes | memoryview) -> str:
        return value if isinstance(value, str) else bytes(value).decode()

    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT consumer, id FROM ternmq_inbox").all()
    return sorted((text(consumer), text(id_)) for consumer, id_ in found)
