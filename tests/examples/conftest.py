"""A broker in a process of its own, as `ternmq dev` runs it, and what a shell of its user has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.black_box.process import BrokerProcess

ROOT = Path(__file__).parents[2]


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yield a broker of this test's own."""
    with BrokerProcess("dev", tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def environment(dev: BrokerProcess) -> dict[str, str]:
    """Return what a user's shell has set."""
    kept = {name: value for name, value in os.environ.items() if "TERNMQ" not in name}
    return {**kept, "TERNMQ_URL": dev.url, "PYTHONDONTWRITEBYTECODE": "1"}
