"""One Spark for all tests here, and a real broker for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ternmq.model.errors import JavaMissing
from ternmq.testing import InProcessBroker, broker
from tests.spark.delta_jars import delta_jars
from tests.spark.sessions import SETTINGS

if TYPE_CHECKING:
    import ternmq.sync

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # The first pays for Spark's start; a machine may be busy with other things.
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Run Spark, once; skips where there is none."""
    pytest.importorskip("pyspark", reason="needs pyspark and a Java: pip install ternmq[spark]")
    import ternmq.spark
    from ternmq.spark import java

    try:
        java.find(os.environ)
    except JavaMissing as error:
        pytest.skip(f"needs pyspark and a Java: {error}")
    session = ternmq.spark.session(
        "ternmq-tests",
        master="local[2]",
        settings={
            **SETTINGS,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.driver.bindAddress": "127.0.0.1",
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def delta(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the paths of Delta's jars, for ``spark.jars``; skips where there are none."""
    return delta_jars(tmp_path_factory.mktemp("delta"))


@pytest.fixture
def real() -> Iterator[InProcessBroker]:
    """Run a broker with the machine's clocks."""
    with broker(manual=False) as one:
        yield one


@pytest.fixture
def client(real: InProcessBroker) -> Iterator[ternmq.sync.Client]:
    """Be a client of it."""
    import ternmq.sync

    with ternmq.sync.connect(real.url) as one:
        yield one
