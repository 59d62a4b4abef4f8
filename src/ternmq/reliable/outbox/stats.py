"""Counts of an outbox."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class OutboxStats:
    """What an outbox did in this process, and how the table stood at the last look.

    Attributes:
        written: Rows that were inserted; of transactions that were rolled back, too.
        sent: Rows of this process that it sent and the broker stored.
        resent: Rows that its compensator sent and the broker stored.
        duplicates: Of both, those that the broker had stored before.
        refused: Refusals of the broker.
        failed: Rows that are tried no more.
        unseen: Rows whose commit the outbox was not told of (of a bare connection, without
            ``committed()``), or too early to read them: the compensator sends them.
        leader: This process has the lease of the compensator.
        epoch: How often the lease changed its holder, as far as this process knows.
        scans: Looks of its compensator for rows.
        scan_s: Seconds that the last look took.
        page_rows: Rows of the last page.
    """

    written: int = 0
    sent: int = 0
    resent: int = 0
    duplicates: int = 0
    refused: int = 0
    failed: int = 0
    unseen: int = 0
    leader: bool = False
    epoch: int = 0
    scans: int = 0
    scan_s: float = 0.0
    page_rows: int = 0
