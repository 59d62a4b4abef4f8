"""What a test has: a prepared database, a topic, a crew, and how they are judged."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import sqlalchemy as sa

import ternmq
import ternmq.sync
from ternmq.reliable import Outbox
from tests.black_box.process import BrokerProcess
from tests.fault.reliable import checks, shop
from tests.fault.reliable.checks import Verdict
from tests.fault.reliable.crew import Crew, Nursery
from tests.killable_databases import Servers

_NUMBERS: Final = itertools.count(1)


class Place:
    """A database with its crew.

    Attributes:
        kind: Of the database.
        url: Of the database.
        engine: Connects anew each time: the server may be killed.
        topic: Where orders are told of.
        crew: The members.
        accounts: How many there are.
    """

    def __init__(
        self, kind: str, url: str, engine: sa.Engine, topic: str, crew: Crew, broker: BrokerProcess,
        accounts: int,
    ) -> None:  # fmt: skip
        self.kind = kind
        self.url = url
        self.engine = engine
        self.topic = topic
        self.crew = crew
        self.accounts = accounts
        self._broker = broker

    def judge(self) -> Verdict:
        """Return the verdict; see ``checks``."""
        with ternmq.sync.connect(self._broker.url, timeout=60) as client:
            return checks.judge(client, self.engine, self.topic, self.crew, accounts=self.accounts)


@contextmanager
def place(
    kind: str,
    servers: Servers,
    broker: BrokerProcess,
    forks: Nursery,
    folder: Path,
    *,
    accounts: int = 4,
    lease_s: float = 2.0,
    broker_url: str = "",
    url: str = "",
) -> Iterator[Place]:
    """Make a database and its crew.

    Args:
        kind: Of the database.
        servers: Have it.
        broker: Where messages go.
        forks: Forks members.
        folder: For their files.
        accounts: How many accounts there are.
        lease_s: See ``member.Orders``.
        broker_url: How members reach the broker, if not directly.
        url: Of the database, if there is one already; it stays.
    """
    fresh = not url
    url = url or servers.fresh(kind)
    topic = f"orders-{next(_NUMBERS)}"
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    client = ternmq.sync.connect(broker.url)
    outbox = Outbox(client, engine)
    outbox.prepare()
    outbox.close()
    with suppress(ternmq.TernMQError):
        client.close(0)
    shop.make(engine, accounts)
    try:
        with Crew(
            forks, folder, database=url, broker=broker_url or broker.url, topic=topic,
            accounts=accounts, lease_s=lease_s,
        ) as crew:  # fmt: skip
            yield Place(kind, url, engine, topic, crew, broker, accounts)
    finally:
        if fresh:
            servers.drop(kind, url)
