"""A shop's database in a file, and a client with an outbox on it; real databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

import ternmq
import ternmq.sync
from ternmq.reliable import Outbox
from ternmq.testing import InProcessBroker
from tests.databases import database, servers

__all__ = ["database", "servers"]

MakeOutbox = Callable[..., Outbox]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    made = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")
    with made.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id INTEGER)")
    yield made
    made.dispose()


@pytest.fixture
def client(real: InProcessBroker) -> Iterator[ternmq.sync.Client]:
    with ternmq.sync.connect(real.url) as made:
        yield made


@pytest.fixture
def make(client: ternmq.sync.Client, engine: sa.Engine) -> Iterator[MakeOutbox]:
    """Make outboxes of ``client`` on ``engine``; they are closed at the end."""
    made: list[Outbox] = []

    def make_one(*, of: object = None, on: object = None, **options: object) -> Outbox:
        outbox = Outbox(of or client, on or engine, **options)  # type: ignore[arg-type]
        outbox.prepare()
        made.append(outbox)
        return outbox

    yield make_one
    for one in made:
        one.close()


def rows(engine: sa.Engine) -> int:
    """Return how many rows the outbox has."""
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT count(*) FROM ternmq_outbox").scalar_one()
        return int(found)


def orders(engine: sa.Engine) -> int:
    """Return how many orders the shop has."""
    with engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM orders").scalar_one())


def bodies(client: ternmq.sync.Client, topic: str = "orders") -> list[bytes]:
    """Return what the topic has, by queue and offset."""
    try:
        return [one.body for one in client.read(topic)]
    except ternmq.UnknownTopic:  # nothing was sent yet
        return []
