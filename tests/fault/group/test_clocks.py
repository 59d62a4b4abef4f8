"""The wall clocks of the brokers are wrong by an hour, and jump (DLY-2).

A broker that becomes the primary goes on with the broker time of the one before, whatever its own
wall clock says: nothing is delivered early, no lease ends and no message expires because of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pytest

import ternmq
import ternmq.sync
from tests import coordinators
from tests.fault.group.brokers import Brokers, wait
from tests.fault.group.checks import sound
from tests.fault.group.clocks import WallClock, library
from tests.fault.group.load import GroupLoad
from tests.fault.group.tools import cycles, seconds
from tests.fault.processes import DEADLINE, wait_until
from tests.fault.server.delays import Delays, kept_up

pytestmark = [pytest.mark.fault, pytest.mark.slow]

TIMES = cycles(1)
HOUR_S: Final = 3600
JUMPS: Final = (HOUR_S, -HOUR_S, 24 * HOUR_S, -24 * HOUR_S)
EARLY: Final = timedelta(seconds=0.5)
"""Broker time and the clock of this process may differ by so much: the first moves towards the
second by one part in a hundred."""
COUNT: Final = 20
MOST_S: Final = seconds(5.0, 15.0)
"""Longest delay."""


@pytest.fixture
def clocks(tmp_path: Path) -> dict[str, WallClock]:
    made = library(tmp_path)
    return {
        "a": WallClock(tmp_path / "a", made),
        "b": WallClock(tmp_path / "b", made, HOUR_S),
    }


class Leased:
    """Messages that a consumer holds all the time, and messages that live long or shortly."""

    def __init__(self, client: ternmq.sync.Client) -> None:
        self._client = client
        for topic in ("held", "lives"):
            client.admin.create_topic(topic)
            client.admin.create_group(topic, "g", lease=HOUR_S / 6)
        client.send_many("held", [b"%d" % number for number in range(COUNT)])
        self._held = client.pull("held", group="g", max_messages=COUNT, wait=DEADLINE)
        assert len(self._held) == COUNT
        self._long = {b"long %d" % number for number in range(COUNT)}
        messages = [ternmq.Message(one, expires_after=HOUR_S / 2) for one in sorted(self._long)]
        client.send_many("lives", messages)

    def judge(self, other: ternmq.sync.Client) -> None:
        """Take what there is, through another client: nothing is free, and nothing is over."""
        assert not other.pull("held", group="g", max_messages=COUNT, wait=1), "a lease ended early"
        self._held.ack()
        wait(lambda: self._floor("held") == COUNT, "what was held is settled")
        other.send_many("lives", [ternmq.Message(b"short", expires_after=0.1)])
        over = time.monotonic() + 0.5
        wait_until(lambda: time.monotonic() > over, "the short one is over")
        found = {one.body for one in self._all(other)}
        assert found == self._long, "a message expired early, or never"

    def _floor(self, topic: str) -> int:
        return sum(one.floor for one in self._client.admin.group(topic, "g").queues)

    @staticmethod
    def _all(client: ternmq.sync.Client) -> Iterator[ternmq.sync.Delivery]:
        while found := client.pull("lives", group="g", max_messages=COUNT, wait=1):
            yield from found
            found.ack()


@contextmanager
def group_of(folder: Path, before: Mapping[str, Sequence[str]]) -> Iterator[Brokers]:
    """A broker group whose coordinator has a clock of its own, which SQLite has not."""
    with coordinators.postgresql() as server:
        if server is None:
            pytest.skip("needs PostgreSQL")
        with Brokers(folder, cluster=server.url, before=before) as brokers:
            yield brokers


def gap_is(client: ternmq.sync.Client, ahead_s: int) -> bool:
    """Whether the primary finds its wall clock so far ahead of broker time."""
    found = client.admin.status()
    return abs(found.clock_gap.total_seconds() - ahead_s) < 5


@pytest.mark.timeout(240 + 120 * TIMES)
def test_wall_clocks_an_hour_apart_that_jump(clocks, memory_folder, verdicts):
    """Delays, leases and expiries follow broker time over jumps and failovers."""
    chance = random.Random(3)
    record = memory_folder / "history"
    before = {name: one.before for name, one in clocks.items()}
    ahead = {"a": 0, "b": HOUR_S}
    with group_of(memory_folder / "group", before) as brokers:

        def move(name: str) -> None:
            ahead[name] = chance.choice([one for one in JUMPS if one != ahead[name]])
            clocks[name].set(ahead[name])

        def more() -> bool:
            return delays.reached(scheduled + 100)

        with (
            GroupLoad(brokers.addresses, record) as load,
            ternmq.sync.connect(brokers.url, timeout=120) as client,
        ):
            delays = Delays(client)
            delays.make()
            leased = Leased(client)
            with kept_up(delays, client, most_s=MOST_S):
                for _ in range(TIMES):
                    scheduled = len(delays.sent)
                    wait_until(more, "some are scheduled")
                    primary, replica = brokers.primary, brokers.other
                    brokers.kill(primary)
                    brokers.wait_for_primary(replica)
                    for name in (replica, primary):
                        wait(partial(gap_is, client, ahead[replica]), "the clock is not followed")
                        move(name)
                    wait(partial(gap_is, client, ahead[replica]), "the jump is not followed")
                    scheduled = len(delays.sent)
                    wait_until(more, "some more are scheduled")
                    brokers.start(primary)
                    brokers.wait_until_whole()
            delays.drained()
            assert delays.judge() > 100 * TIMES
            assert not (early := delays.early(EARLY)), early
            with ternmq.sync.connect(brokers.url, timeout=120) as other:
                leased.judge(other)
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)
