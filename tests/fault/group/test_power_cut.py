"""Power cuts under brokers of a group, each on a file system of its own (REP-4, REP-6, DUR-4)."""

from __future__ import annotations

import contextlib
import random

import pytest

from tests.fault.group.brokers import Brokers
from tests.fault.group.checks import sound
from tests.fault.group.load import GroupLoad
from tests.fault.group.tools import cycles
from tests.fault.tools import need_root
from tests.fault.volumes import Volume

pytestmark = [pytest.mark.fault, pytest.mark.slow]

MORE = 60
CUTS = cycles(1)


@pytest.mark.timeout(180 + 60 * CUTS)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_power_cuts_of_one_and_of_both(kind, memory_folder, verdicts):
    """What was answered is on a disk, or in a member that lives; the copies agree afterwards."""
    need_root(f"mkfs.{kind}")
    chance = random.Random(kind)
    record = memory_folder / "history"
    with contextlib.ExitStack() as stack:
        volumes = {
            name: stack.enter_context(Volume(memory_folder / name, kind)) for name in ("a", "b")
        }
        data = {name: one.point / "data" for name, one in volumes.items()}
        brokers = stack.enter_context(Brokers(memory_folder / "group", data=data))
        with GroupLoad(brokers.addresses, record) as load:
            for _ in range(CUTS):
                for victims in ("primary", "replica", "both"):
                    load.sent(chance.randint(MORE, 4 * MORE))
                    names = [brokers.primary, brokers.other]
                    if victims != "both":
                        names = [names[victims == "replica"]]
                    for name in names:
                        brokers[name].stop()
                    for name in names:
                        volumes[name].shut_down()
                    for name in names:
                        brokers.kill(name)
                        volumes[name].again()
                    chance.shuffle(names)
                    if victims != "both":
                        load.sent(MORE)
                    for name in names:
                        brokers.start(name)
                    load.sent(MORE)
                    brokers.wait_until_whole()
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)


@pytest.mark.timeout(120 + 60 * CUTS)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_replica_that_lost_its_tail_is_not_elected(kind, memory_folder, verdicts):
    """REP-4: the replica's power is cut, and the primary dies before it has caught up."""
    need_root(f"mkfs.{kind}")
    record = memory_folder / "history"
    with contextlib.ExitStack() as stack:
        volume = stack.enter_context(Volume(memory_folder / "volume", kind))
        data = {"b": volume.point / "data"}
        brokers = stack.enter_context(Brokers(memory_folder / "group", data=data))
        with GroupLoad(brokers.addresses, record) as load:
            for _ in range(CUTS):
                load.sent(MORE)
                if brokers.primary == "b":
                    brokers.kill("b")
                    brokers.wait_for_primary("a")
                    brokers.start("b")
                    brokers.wait_until_whole()
                brokers["b"].stop()
                volume.shut_down()
                brokers.kill("b", "a")
                volume.again()
                brokers.start("b")
                brokers.start("a")
                brokers.wait_for_primary("a")
                load.sent(MORE)
                brokers.wait_until_whole()
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)
