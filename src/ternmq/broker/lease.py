"""Leases, and rows that are owed."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from ternmq.record.facts import LeasedRun

LEASE_BITS: Final = 40
"""A lease id is ``epoch << LEASE_BITS | number``."""
LEASE_LIMIT: Final = 1 << LEASE_BITS


class Owed(NamedTuple):
    """A row at or below the cursor that is not done."""

    offset: int
    position: int
    """The record that tells of its newest failure, 0 if it never failed."""
    attempt: int
    deliveries: int
    when_us: int


class Lease(msgspec.Struct, eq=False):
    """Rows handed out in one pull that are not settled yet."""

    id: int
    session: int
    until_us: int
    runs: list[LeasedRun] = []
