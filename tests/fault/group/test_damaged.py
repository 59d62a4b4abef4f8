"""A folder whose durable bytes are damaged: the broker copies them again before it may lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.segment import segment_name
from ternmq.journal.recovery.ending import find_end
from tests.fault.group.brokers import Brokers
from tests.fault.group.checks import sound
from tests.fault.group.load import GroupLoad
from tests.fault.group.test_wrong import contents

pytestmark = [pytest.mark.fault, pytest.mark.slow]

MORE = 60


def damage(data: Path) -> None:
    """Damage a record behind the newest state, below what is durable there."""
    ending = find_end(RealDisk(data, read_only=True))
    assert ending is not None
    durable = min(ending.durable, ending.valid_end)
    assert ending.start + 400 < durable, "there is something to damage"
    at = (ending.start + durable) // 2
    base = at - at % ending.segment_size
    with (data / segment_name(base)).open("r+b") as file:
        file.seek(at - base)
        file.write(b"\xa5" * 64)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("victim", ["primary", "replica"])
@pytest.mark.parametrize("follower", ["member", "synced"])
def test_a_damaged_folder_is_mended_from_the_other(memory_folder, verdicts, victim, follower):
    """That of a former primary as well: another broker leads by then."""
    record = memory_folder / "history"
    with Brokers(memory_folder / "group", follower=follower) as brokers:
        with GroupLoad(brokers.addresses, record) as load:
            load.sent(4 * MORE)
            primary, replica = brokers.primary, brokers.other
            name = primary if victim == "primary" else replica
            brokers.kill(name)
            if name == primary:
                brokers.wait_for_primary(replica)
            damage(brokers.data[name])
            load.sent(MORE)
            brokers.start(name)
            brokers.wait_until_whole()
            assert "the copy is damaged" in brokers.log(name)
            load.sent(MORE)
            brokers.kill(brokers.primary)  # and it leads with all of it, if it is the other
            load.sent(MORE)
            brokers.start(next(one for one in brokers.names if one not in brokers.running))
            brokers.wait_until_whole()
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)


@pytest.mark.timeout(240)
def test_nothing_is_given_up_while_no_primary_is_there(memory_folder, verdicts):
    """The record names it as a member, since its disk is what counts; and the primary is gone."""
    record = memory_folder / "history"
    with Brokers(memory_folder / "group", follower="synced") as brokers:
        with GroupLoad(brokers.addresses, record) as load:
            load.sent(4 * MORE)
            primary, replica = brokers.primary, brokers.other
            brokers.kill(replica, primary)
            damage(brokers.data[replica])
            kept = contents(brokers.data[replica])
            left = brokers.record()
            assert left is not None
            assert replica in [one.broker for one in left.members]
            one = brokers.begin(replica)
            assert one.wait() != 0
            assert "damage at position" in one.log
            assert contents(brokers.data[replica]) == kept
            assert brokers.record() == left
            brokers.kill(replica)
            brokers.start(primary)
            brokers.wait_for_primary(primary)
            brokers.start(replica)
            brokers.wait_until_whole()
            load.sent(MORE)
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)
