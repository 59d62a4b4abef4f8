"""What ``ternmq broker status`` says of damaged bytes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ternmq.cli.broker.broker import _summary, scrub_document
from ternmq.wire.control import ScrubInfo, Status

HOUR_US = 3_600_000_000
NOW_US = 1_700_000_000_000_000


def line_of(scrub: ScrubInfo) -> str:
    status = Status(
        broker="a", version="1", epoch=1, now_us=NOW_US, uptime_us=5, metrics={}, scrub=scrub
    )
    (line,) = [str(text) for name, text in _summary("here:1", status) if name == "scrub"]
    return line


@pytest.mark.parametrize(
    ("scrub", "said"),
    [
        (ScrubInfo(), "off"),
        (ScrubInfo(on=True), "no round has ended yet"),
        (
            ScrubInfo(on=True, completed_us=NOW_US - 2 * HOUR_US),
            "the last round ended 2h ago",
        ),
        (
            ScrubInfo(on=True, completed_us=NOW_US - 2 * HOUR_US, damaged=1, found=3, mended=2),
            "the last round ended 2h ago; 1 range damaged; 2 ranges mended since the start",
        ),
        (ScrubInfo(damaged=2, found=2), "off; 2 ranges damaged"),
    ],
)
def test_one_line_says_it(scrub: ScrubInfo, said: str) -> None:
    assert line_of(scrub) == said


def test_the_document_has_all_of_it() -> None:
    found = ScrubInfo(on=True, completed_us=NOW_US, damaged=1, found=3, mended=2)
    document = scrub_document(found)
    assert document["completed"] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert {name: document[name] for name in ("on", "damaged", "found", "mended")} == {
        "on": True, "damaged": 1, "found": 3, "mended": 2,
    }  # fmt: skip
    assert scrub_document(ScrubInfo())["completed"] is None
