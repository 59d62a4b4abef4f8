"""``ternmq alarm``: what is open, and what is cleared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ternmq.sync
from ternmq.testing import InProcessBroker, broker
from tests.cli.conftest import CommandLine
from tests.integration.test_alarms import hold_a_key, wait_for


@pytest.fixture
def timed() -> Iterator[InProcessBroker]:
    with broker() as one:
        yield one


def test_alarms_are_listed_and_cleared(cli: CommandLine, timed: InProcessBroker) -> None:
    url = timed.url
    assert cli("alarm", "list", "--url", url).err == "no alarms\n"
    assert cli("alarm", "list", "--json", "--url", url).json == []
    assert "alarms         none" in cli("broker", "status", "--url", url).out
    with ternmq.sync.connect(url) as client:
        hold_a_key(client)
    wait_for(timed, 2)
    (row,) = cli("alarm", "list", "--url", url).rows
    assert row[:2] == ["held", "orders/billing/0"]
    assert " ".join(row[3:]).startswith("a message failed for good")
    (one,) = cli("alarm", "list", "--json", "--url", url).json
    assert (one["alarm"], one["subject"]) == ("held", "orders/billing/0")
    assert one["since"].startswith("2026-01-01T00:00:0")
    assert "1 open: see `ternmq alarm list`" in cli("broker", "status", "--url", url).out
    assert cli("broker", "status", "--json", "--url", url).json["alarms"] == 1
    said = cli("alarm", "clear", "held", "orders/billing/0", "--url", url).err
    assert said == "cleared alarm held orders/billing/0\n"
    assert "there is no alarm 'held'" in cli("alarm", "clear", "held", "--url", url, code=4).err
