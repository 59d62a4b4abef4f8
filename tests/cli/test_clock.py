"""``ternmq clock``: what it shows of both times, and what it accepts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from ternmq.testing import InProcessBroker, broker
from ternmq.testing.clock import START_US
from tests.cli.conftest import CommandLine


@pytest.fixture
def timed() -> Iterator[InProcessBroker]:
    with broker() as one:
        yield one


def shown(cli: CommandLine, url: str) -> dict[str, str]:
    lines = [line.split(maxsplit=1) for line in cli("clock", "--url", url).out.splitlines()]
    return {name: text for name, text in lines if name != "broker"}


def test_both_times_are_shown(cli: CommandLine, timed: InProcessBroker) -> None:
    out = cli("clock", "--url", timed.url).out.splitlines()
    assert [line.split("  ")[0] for line in out] == ["broker time", "clock", "gap"]
    assert shown(cli, timed.url)["gap"] == "0s; broker time follows the clock"
    timed.clock.jump_wall(hours=3)
    assert shown(cli, timed.url) == {
        "clock": "2026-01-01T03:00:00.000Z",
        "gap": "the clock is 3h ahead of broker time, which does not follow it",
    }
    told = cli("--url", timed.url, "clock", "--json").json
    assert (told["gap_s"], told["followed"]) == (3 * 3600, False)
    begin = datetime.fromisoformat(told["broker_time"])
    assert begin.timestamp() == START_US / 1e6
    assert datetime.fromisoformat(told["clock"]) - begin == timedelta(hours=3)


def test_the_clock_is_accepted_once_somebody_agrees(
    cli: CommandLine, timed: InProcessBroker
) -> None:
    url = timed.url
    assert cli("clock", "accept", "--url", url).err == (
        "nothing to accept: 0s; broker time follows the clock\n"
    )
    timed.clock.jump_wall(days=2)
    assert "add --yes" in cli("clock", "accept", "--url", url, code=1).err
    assert not cli("clock", "--json", "--url", url).json["followed"]
    said = cli("clock", "accept", "--yes", "--url", url).err
    assert said == (
        "broker time was 2026-01-01T00:00:00.000Z, and is now 2026-01-03T00:00:00.000Z\n"
    )
    assert cli("clock", "--json", "--url", url).json["followed"]
    timed.clock.jump_wall(days=-2)
    said = cli("clock", "accept", "--yes", "--url", url, code=1).err
    assert "the clock is 2d behind broker time" in said
    assert "never goes back" in said


def test_status_and_doctor_show_the_gap(
    cli: CommandLine, timed: InProcessBroker, tmp_path: object
) -> None:
    url = timed.url
    timed.clock.jump_wall(days=-2)
    assert "the clock is 2d behind broker time" in cli("broker", "status", "--url", url).out
    assert cli("broker", "status", "--json", "--url", url).json["clock_gap_s"] == -2 * 86400
    checks = cli("doctor", "--data", tmp_path, "--url", url, "--json").json
    (found,) = [one for one in checks if one["name"] == "broker time"]
    assert found["state"] == "warn"
    assert found["said"].startswith("the clock is 2d behind broker time, which does not follow it")
    timed.clock.jump_wall(days=2)
    checks = cli("doctor", "--data", tmp_path, "--url", url, "--json").json
    assert [one["state"] for one in checks if one["name"] == "broker time"] == ["ok"]
