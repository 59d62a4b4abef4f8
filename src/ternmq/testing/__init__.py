"""The real broker inside a test: in memory, with a clock that the test moves.

    with ternmq.testing.broker() as b:
        client = ternmq.connect(b.url)
        ...
        b.clock.advance(hours=2)      # what is due in two hours is done when this returns

Reading order: ``in_process`` (the broker in its own thread), ``clock`` (its time), ``groups``
(waiting for consumers), ``plugin`` (the same as pytest fixtures), ``programs`` (imports of a
program under test). It is the same broker as in production, with its journal on a disk in memory:
only the disk and the clocks are simulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ternmq.testing.clock import ManualClock

if TYPE_CHECKING:
    from ternmq.testing.in_process import InProcessBroker, broker

__all__ = ["InProcessBroker", "ManualClock", "broker"]


def __getattr__(name: str) -> object:
    """Import the broker at its first use: pytest loads this package in every run."""
    if name in {"InProcessBroker", "broker"}:
        from ternmq.testing import in_process

        found: object = getattr(in_process, name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
