"""Real coordinators, one of each for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import coordinators
from tests.asynchronous import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture(scope="module")
def postgresql() -> Iterator[coordinators.Server]:
    with coordinators.postgresql() as server:
        if server is None:
            pytest.skip("needs PostgreSQL")
        yield server


@pytest.fixture(scope="module")
def mariadb() -> Iterator[coordinators.Server]:
    with coordinators.mariadb() as server:
        if server is None:
            pytest.skip("needs MariaDB")
        yield server


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[coordinators.Server]:
    with coordinators.zookeeper() as servers:
        if servers is None:
            pytest.skip("needs ZooKeeper and a Java")
        yield servers[0]
