"""All that may happen next in a state."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model import events, following, reign
from tests.model.run import Run
from tests.model.state import State, Step


def steps(run: Run, state: State) -> Iterator[Step]:
    """Yield each step that is possible in a state."""
    for broker, node in enumerate(state.nodes):
        if node.role == "serves":
            yield from reign.steps(run, state, broker, node)
        elif node.role == "follows":
            yield from following.steps(run, state, broker, node)
        elif run.broken.stand_without_stopping and node.follows is not None:
            yield from following.copy(run, state, broker, node, node.follows.broker)
        if node.swap is not None:
            yield from events.learn(run, state, broker, node)
        if state.left.crashes:
            yield from events.crash(run, state, broker, node)
    for swap in sorted(state.swaps, key=lambda one: (one.sender, one.record.epoch)):
        yield events.take(state, swap)
