"""A lease: rows handed out in one pull."""

from __future__ import annotations

from typing import Final

import msgspec

from ternmq.record.facts import LeasedRun

LEASE_BITS: Final = 40
"""A lease id is ``epoch << LEASE_BITS | number``."""
LEASE_LIMIT: Final = 1 << LEASE_BITS
EPOCH_LIMIT: Final = 1 << 64 - LEASE_BITS
"""An epoch below this has room in a lease id, which STATE keeps as u64."""


class Lease(msgspec.Struct, eq=False):
    """Rows handed out in one pull that are not settled yet."""

    id: int
    session: int
    until_us: int
    runs: list[LeasedRun] = []
    at_once: int = 0
    """Rows of the group that its consumer works on at one time, as the pull said; 0: it did not.
    Volatile: what the end of a lease comes to stands in its record, and of a lease from before a
    start every row counts."""
