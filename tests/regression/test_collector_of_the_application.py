"""A broker in the process of a test froze what the whole process had, and collected before.

That took 0.1 to 0.4 s at every start of one, most of what a test with a broker took, and no cycle
of the application's was freed until the broker stopped; after ``restart(clean=False)`` never.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ternmq.testing import broker


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """Return the phases of full collections, as they come."""
    phases: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if info["generation"] == 2:
            phases.append(phase)

    enabled = gc.isenabled()
    gc.disable()  # none but those that are asked for
    gc.callbacks.append(note)
    yield phases
    gc.callbacks.remove(note)
    if enabled:
        gc.enable()


def test_it_is_left_alone(collections: list[str]) -> None:
    frozen = gc.get_freeze_count()
    with broker(manual=False) as one:
        assert gc.get_freeze_count() == frozen
        one.restart(clean=False)
    assert gc.get_freeze_count() == frozen
    assert not collections
