"""Fixtures for the tests of an application; registered with pytest as ``ternmq``.

``ternmq_broker``
    A fresh broker in memory for each test, with a manual clock.
``ternmq_settings``
    The settings of that broker; override it where others are needed.
``ternmq_url``
    Its address.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ternmq.testing.in_process import InProcessBroker


@pytest.fixture
def ternmq_settings() -> dict[str, object]:
    """Return settings of the test's broker by name; a test or conftest.py overrides it."""
    return {}


@pytest.fixture
def ternmq_broker(ternmq_settings: dict[str, object]) -> Iterator[InProcessBroker]:
    """Yield a fresh broker whose time the test moves."""
    from ternmq.testing.in_process import broker

    with broker(settings=ternmq_settings) as one:
        yield one


@pytest.fixture
def ternmq_url(ternmq_broker: InProcessBroker) -> str:
    """Return the address of the test's broker."""
    return ternmq_broker.url
