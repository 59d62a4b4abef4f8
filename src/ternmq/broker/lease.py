"""A lease: rows handed out in one pull."""

from __future__ import annotations

from typing import Final

import msgspec

from ternmq.record.facts import LeasedRun

LEASE_BITS: Final = 40
"""A lease id is ``epoch << LEASE_BITS | number``."""
LEASE_LIMIT: Final = 1 << LEASE_BITS


class Lease(msgspec.Struct, eq=False):
    """Rows handed out in one pull that are not settled yet."""

    id: int
    session: int
    until_us: int
    runs: list[LeasedRun] = []
