from __future__ import annotations

import pytest

from tests.unit.spark.fake_port import FakeBroker


@pytest.fixture
def broker():
    """Run a pretended broker with a topic of two queues."""
    return FakeBroker(orders=2)
