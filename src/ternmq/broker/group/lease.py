"""A lease: rows handed out in one pull."""

from __future__ import annotations

from typing import Final

import msgspec

from ternmq.record.fact.facts import LeasedRun

LEASE_BITS: Final = 40
"""A lease id is ``epoch << LEASE_BITS | number``."""
LEASE_LIMIT: Final = 1 << LEASE_BITS
EPOCH_LIMIT: Final = 1 << 64 - LEASE_BITS
"""An epoch below this fits into a lease id, which is u64 in STATE."""

DETACHED: Final = (1 << 32) - 1
"""Session of a detached lease, which belongs to no session: it ends by time or by its settles only.
Sessions are numbered from 1; 0 stands for transactions."""
LENT_UNTIL_US: Final = 1 << 62
"""End of a lease that belongs to a transaction: it has epoch 0 and the transaction's number."""


class Lease(msgspec.Struct, eq=False):
    """Rows handed out in one pull that are not settled yet."""

    id: int
    session: int
    until_us: int
    runs: list[LeasedRun] = []
    """Sorted; while a journal is replayed, those that were loaded are in any order."""
    at_once: int = 0
    """Number of the group's rows that its consumer works on at one time; 0: unknown.
    Volatile: the record of a lease's end contains the result, and every row of a lease from before
    a start counts."""
