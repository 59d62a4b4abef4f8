"""Replicas that have to catch up: wiped, or far behind, also where segments were removed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import ternmq.sync
from tests.fault.group.brokers import Brokers, wait
from tests.fault.group.checks import at_rest, differences, extent, sound
from tests.fault.group.load import GroupLoad
from tests.fault.group.tools import cycles

pytestmark = [pytest.mark.fault, pytest.mark.slow]

MORE = 60
TIMES = cycles(1)


@pytest.mark.timeout(120 + 60 * TIMES)
def test_a_wiped_replica_is_brought_up(memory_folder, verdicts):
    """Its folder is empty: it copies everything while the primary serves, and can take over."""
    record = memory_folder / "history"
    with Brokers(memory_folder / "group") as brokers:
        with GroupLoad(brokers.addresses, record) as load:
            for _ in range(TIMES):
                load.sent(2 * MORE)
                primary, replica = brokers.primary, brokers.other
                brokers.kill(replica)
                shutil.rmtree(brokers.data[replica])
                load.sent(MORE)
                brokers.start(replica)
                brokers.wait_until_whole()
                brokers.kill(primary)
                load.sent(MORE)
                brokers.start(primary)
                brokers.wait_until_whole()
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)


FILLER = "filler"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("removed", [False, True])
def test_a_replica_that_is_far_behind(removed, memory_folder):
    """It gets the segments that it lacks, or all anew when what would follow was removed."""
    with Brokers(memory_folder / "group", retention_max="15MiB" if removed else "0") as brokers:
        with ternmq.sync.connect(brokers.url, timeout=60) as client:
            client.admin.create_topic(FILLER, retention=1, keep_until_consumed=False)
            client.admin.create_topic("kept")
            client.admin.create_group("kept", "g")
            primary, replica = brokers.primary, brokers.other
            fill(client)
            brokers.kill(replica)
            end = extent(brokers.data[replica]).end
            fill(client, 20)
            if removed:
                wait(lambda: more(client, brokers.data[primary], end), "segments are removed", 120)
            client.send_many("kept", [b"%d" % number for number in range(100)])
            brokers.start(replica)
            wait(lambda: served(client) and brokers.is_whole(), "both are members")
            if removed:
                assert extent(brokers.data[replica]).first > end
            brokers.kill(primary)
            found = client.pull("kept", group="g", max_messages=100, wait=30)
            assert sorted(int(one.body) for one in found) == [*range(100)]
            found.ack()
            brokers.start(primary)
            brokers.wait_until_whole()
        primary, replica = brokers.primary, brokers.other
        at_rest(brokers)
        assert not differences(brokers.data[primary], brokers.data[replica])


def fill(client: ternmq.sync.Client, times: int = 4) -> None:
    """Send 1 MiB, so many times."""
    for _ in range(times):
        client.send_many(FILLER, [bytes(50_000)] * 20)


def served(client: ternmq.sync.Client) -> bool:
    """Send more; the primary removes segments meanwhile."""
    fill(client, 1)
    return True


def more(client: ternmq.sync.Client, data: Path, end: int) -> bool:
    """Send more; return whether the journal begins behind a position now."""
    fill(client, 1)
    return extent(data).first > end
