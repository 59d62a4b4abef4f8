"""The real broker inside a test: in memory, with a clock that the test moves.

    with ternmq.testing.broker() as b:
        client = ternmq.connect(b.url)
        ...
        b.clock.advance(hours=2)      # what is due in two hours is done when this returns

    with ternmq.testing.cluster(replicas=1) as pair:
        client = ternmq.connect(pair.url)
        ...
        pair.kill()                   # the primary
        pair.clock.advance(seconds=3) # its lease is over: the replica leads when this returns

Reading order: ``in_process`` (the broker in its own thread), ``clock`` (its time), ``passage``
(what happens while time passes), ``groups`` (waiting for consumers), ``in_process_cluster`` (a
primary and replicas in a thread) and ``brokers`` (those brokers, in their loop), ``plugin`` (the
same as pytest fixtures), ``programs`` (imports of a program under test). It is the same broker as
in production, with its journal on a disk in memory: only the disk, the clocks and the coordinator
are simulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ternmq.testing.clock import ManualClock

if TYPE_CHECKING:
    from ternmq.testing.in_process import InProcessBroker, broker
    from ternmq.testing.in_process_cluster import Cluster, ClusterBroker, cluster

__all__ = ["Cluster", "ClusterBroker", "InProcessBroker", "ManualClock", "broker", "cluster"]


def __getattr__(name: str) -> object:
    """Import the broker at its first use: pytest loads this package in every run."""
    if name in {"InProcessBroker", "broker"}:
        from ternmq.testing import in_process

        found: object = getattr(in_process, name)
    elif name in {"Cluster", "ClusterBroker", "cluster"}:
        from ternmq.testing import in_process_cluster

        found = getattr(in_process_cluster, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found
