"""Fixtures for the tests of an application; registered with pytest as ``ternmq``.

``ternmq_broker``
    A fresh broker in memory for each test, with a manual clock.
``ternmq_cluster``
    A fresh primary with one replica for each test, in memory, with a manual clock.
``ternmq_settings``
    The settings of those brokers; override it if others are needed.
``ternmq_url``
    The address of ``ternmq_broker``.
``ternmq_import``
    Imports a program whose client is made at its import, so that it uses that broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ternmq.testing.in_process import InProcessBroker
    from ternmq.testing.in_process_cluster import Cluster


@pytest.fixture
def ternmq_settings() -> dict[str, object]:
    """Return settings of the test's brokers by name; a test or conftest.py may override it."""
    return {}


@pytest.fixture
def ternmq_broker(ternmq_settings: dict[str, object]) -> Iterator[InProcessBroker]:
    """Yield a new broker, whose time the test moves."""
    from ternmq.testing.in_process import broker

    with broker(settings=ternmq_settings) as one:
        yield one


@pytest.fixture
def ternmq_cluster(ternmq_settings: dict[str, object]) -> Iterator[Cluster]:
    """Yield a new primary with one replica, whose time the test moves."""
    from ternmq.testing.in_process_cluster import cluster

    with cluster(settings=ternmq_settings) as one:
        yield one


@pytest.fixture
def ternmq_url(ternmq_broker: InProcessBroker) -> str:
    """Return the address of the test's broker."""
    return ternmq_broker.url


@pytest.fixture
def ternmq_import(
    ternmq_broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], ModuleType]]:
    """Yield a function that imports a module of the program under test, new for this test.

    ``TERNMQ_URL`` names the test's broker, so ``ternmq.connect()`` without an address in the module
    connects to it. Modules of the same top-level package are imported again with it, and are
    removed when the test ends; clients of ``ternmq.sync`` that are still open then are closed.
    """
    from ternmq.testing.programs import Programs

    with Programs(ternmq_broker, monkeypatch) as programs:
        yield programs.load
