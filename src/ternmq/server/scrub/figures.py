"""What is known of damaged bytes: for metrics, the status and alarms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ternmq.model.types import Epoch, Position
from ternmq.server.telemetry.families import Numbers, counter, gauge, gauge_by


class Extent(NamedTuple):
    """Which bytes of a journal may be read and mended.

    Attributes:
        segment_size: Bytes of every segment file.
        first: Base of the oldest segment.
        safe: The smaller one of the commit mark and the durable mark.
        epoch: Largest epoch of a record.
    """

    segment_size: int
    first: Position
    safe: Position
    epoch: Epoch


class MendedRange(NamedTuple):
    """A range that was damaged and is mended.

    Attributes:
        file: Name of the segment file in which it begins.
        text: What happened, for people.
    """

    file: str
    text: str


@dataclass(frozen=True, slots=True)
class ScrubFigures:
    """What the scrub has done.

    Attributes:
        on: Whether rounds are read: the setting ``scrub`` is not 0.
        completed_us: When the last complete round ended, by the wall clock; 0: none did.
        read_bytes: Bytes that were read again since the start.
        found: Damaged ranges that were found since the start.
        mended: Ranges that were mended since the start.
        damaged: Ranges that are damaged now.
    """

    on: bool = False
    completed_us: int = 0
    read_bytes: int = 0
    found: int = 0
    mended: int = 0
    damaged: int = 0


def scrub_families(figures: ScrubFigures) -> Iterator[Numbers]:
    """Yield the families of the scrub."""
    completed = [((), figures.completed_us / 1e6)] if figures.completed_us else []
    yield gauge_by(
        "scrub_completed_seconds",
        "When the last complete scrub of the journal ended, in seconds since 1970; no value before"
        " the first.",
        (),
        completed,
    )
    yield counter(
        "scrub_read_bytes", "Bytes of the journal that the scrub has read.", figures.read_bytes
    )
    yield counter(
        "damaged_ranges_found", "Damaged ranges of the journal that were found.", figures.found
    )
    yield counter(
        "damaged_ranges_mended",
        "Damaged ranges of the journal that were mended from another copy.",
        figures.mended,
    )
    yield gauge(
        "damaged_ranges", "Ranges of the journal that are known to be damaged.", figures.damaged
    )
