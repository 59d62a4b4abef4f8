"""What ``broker status`` says of the oldest file of the journal."""

from __future__ import annotations

import msgspec
import pytest

from ternmq.cli.broker.broker import _summary, oldest_file
from ternmq.cli.broker.doctor import _sends
from ternmq.wire.control import OldestFile, Status
from tests.cli.conftest import CommandLine

STATE = "kept, because the broker must write its state to a newer file first"


def status_of(file: OldestFile, **metrics: float) -> Status:
    return Status(
        broker="b",
        version="1",
        epoch=1,
        now_us=100_000_000,
        uptime_us=1,
        metrics=dict(metrics),
        oldest_file=file,
    )


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (
            OldestFile(kept_by="active"),
            "the only file of the journal: new messages are written to it",
        ),
        (
            OldestFile(kept_by="retention", topic="orders", since_us=40_000_000),
            "kept, because the retention of topic orders is not over (for the last 1m)",
        ),
        (
            OldestFile(kept_by="group", topic="orders", group="billing"),
            "kept, because group billing has not finished its messages of topic orders",
        ),
        (
            OldestFile(kept_by="group"),
            "kept, because a group has not finished its messages of a topic",
        ),
        (OldestFile(kept_by="hold", name="archive"), "kept by hold archive"),
        (OldestFile(kept_by="hold"), "kept by a hold"),
        (
            OldestFile(kept_by="follower", name="b"),
            "kept, because it is still to be sent to follower b",
        ),
        (
            OldestFile(kept_by="schedule"),
            "kept, because scheduled messages are in it; they are copied after a day",
        ),
        (
            OldestFile(kept_by="check-back"),
            "kept, because undecided transactions are in it; they are copied after a day",
        ),
        (
            OldestFile(kept_by="state", lacks_room=True),
            f"{STATE}, but the reserve has no room for it: free disk space",
        ),
        (OldestFile(kept_by="what a newer broker says"), "what a newer broker says"),
    ],
)
def test_what_keeps_it_is_a_line(file: OldestFile, said: str) -> None:
    assert oldest_file(status_of(file)) == said


def test_where_sends_are_refused_no_room_is_told_of() -> None:
    for refused, said in ((False, "0B, room for 9B"), (True, "0B, and sends are refused")):
        status = status_of(OldestFile(sends_refused=refused), ternmq_journal_room=9.0)
        assert dict(_summary("ternmq://b", status))["journal"] == said


def test_doctor_fails_where_sends_are_refused() -> None:
    file = OldestFile(kept_by="group", topic="orders", group="billing", sends_refused=True)
    told = _sends(msgspec.structs.replace(status_of(file), disk_free_bytes=5 << 20))
    assert (told.name, told.state) == ("sends", "fail")
    assert told.said == (
        "refused, because there is no room; 5MiB free of 0B on the broker's disk;"
        " oldest file of the journal: kept, because group billing has not finished its messages of"
        " topic orders"
    )


def test_status_has_it(cli: CommandLine) -> None:
    shown = cli("broker", "status").out
    assert "oldest file" in shown
    document = cli("broker", "status", "--json").json["oldest_file"]
    assert set(document) == {
        "kept_by", "since", "topic", "group", "name", "lacks_room", "sends_refused",
    }  # fmt: skip
    assert document["sends_refused"] is False
