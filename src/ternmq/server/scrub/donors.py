"""What is asked of another broker of the group: records that are damaged here."""

from __future__ import annotations

from typing import Protocol

from ternmq.model.types import Position


class DonorFailed(Exception):
    """Another broker has returned no records; the text says why, for people."""


class Donor(Protocol):
    """Another broker of the group."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    async def read(self, position: Position, segment_bytes: int) -> bytes:
        """Return records of its journal from ``position`` on, at most 1 MiB or one record.

        They are not checked.

        Raises:
            DonorFailed: It cannot be reached, or has none.
        """
        ...
