"""The real broker inside a test: in memory, with a clock that the test moves.

    with ternmq.testing.broker() as b:
        client = ternmq.connect(b.url)
        ...
        b.clock.advance(hours=2)      # what is due in two hours is done when this returns

Reading order: ``in_process`` (the broker in a thread of its own), ``clock`` (its time), ``groups``
(waiting for consumers), ``plugin`` (the same as pytest fixtures), ``programs`` (what one of them
imports). It is the broker that serves in production, with its journal on a disk in memory: nothing
is imitated but the disk and the clocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ternmq.testing.clock import ManualClock

if TYPE_CHECKING:
    from ternmq.testing.in_process import InProcessBroker, broker

__all__ = ["InProcessBroker", "ManualClock", "broker"]


def __getattr__(name: str) -> object:
    """Import the broker when it is asked for: pytest loads this package in every run."""
    if name in {"InProcessBroker", "broker"}:
        from ternmq.testing import in_process

        found: object = getattr(in_process, name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
