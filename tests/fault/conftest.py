"""What every fault test has: verifiers, and folders on a fast or a real disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ternmq.journal.log.worker import SyncThread
from tests.fault.processes import Verdicts


@pytest.fixture(scope="session")
def verdicts() -> Iterator[Verdicts]:
    """Processes that open what workers left."""
    made = Verdicts()
    yield made
    made.close()


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """An empty folder in memory where there is one: for what does not depend on the disk."""
    shm = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="ternmq-", dir=shm if shm.is_dir() else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(autouse=True)
def threads_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End the threads of brokers that a test opened here and left, and free what they hold."""
    made: list[SyncThread] = []
    begin = SyncThread.__init__

    def noted(self: SyncThread, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        made.append(self)

    monkeypatch.setattr(SyncThread, "__init__", noted)
    yield
    for thread in made:
        thread.close()
