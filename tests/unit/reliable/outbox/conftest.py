"""A prepared database in a file, and what an outbox consists of, without threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from ternmq.reliable.database.prepare import prepare
from ternmq.reliable.libraries.alchemy import AlchemyDatabase


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shop.db"


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    made = sa.create_engine(url)
    with made.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id INTEGER)")
    yield made
    made.dispose()


@pytest.fixture
def database(engine: sa.Engine) -> Iterator[AlchemyDatabase]:
    found = AlchemyDatabase(engine)
    prepare(found)
    yield found
    found.close()
