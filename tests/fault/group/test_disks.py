"""The disk of a broker of a group is full, or fails (DUR-5, DUR-6)."""

from __future__ import annotations

import contextlib
import signal
import subprocess

import pytest

from tests.fault.group.brokers import Brokers, wait
from tests.fault.group.checks import sound
from tests.fault.group.load import GroupLoad
from tests.fault.processes import wait_until
from tests.fault.tools import need_root, need_strace
from tests.fault.volumes import Memory, Volume

pytestmark = [pytest.mark.fault, pytest.mark.slow]

MORE = 60
EXIT_FAILED = 1


@pytest.mark.timeout(240)
def test_the_disk_of_the_replica_is_full(memory_folder, verdicts):
    """It is taken out, and sends go on; with room again it catches up by itself."""
    need_root("mkfs.ext4", "fallocate")
    record = memory_folder / "history"
    with contextlib.ExitStack() as stack:
        volume = stack.enter_context(Volume(memory_folder / "volume", "ext4"))
        data = {"b": volume.point / "data"}
        brokers = stack.enter_context(Brokers(memory_folder / "group", data=data))
        with GroupLoad(brokers.addresses, record) as load:
            load.sent(MORE)
            ballast = volume.fill()
            wait(lambda: members(brokers) == ["a"], "the replica is taken out", 120)
            load.sent(4 * MORE)
            assert not brokers["b"].ended, brokers.log("b")
            ballast.unlink()
            brokers.wait_until_whole()
            load.sent(MORE)
            assert not load.counts.refused, load.counts.refused
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)


def members(brokers: Brokers) -> list[str]:
    found = brokers.record()
    return [] if found is None else sorted(one.broker for one in found.members)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("victim", ["primary", "replica"])
def test_a_sync_that_fails_once(victim, memory_folder, verdicts):
    """EIO once, success from then on: the process is gone, the other one goes on at once."""
    need_strace()
    record = memory_folder / "history"
    with Brokers(memory_folder / "group") as brokers:
        with GroupLoad(brokers.addresses, record) as load:
            load.sent(MORE)
            primary, replica = brokers.primary, brokers.other
            name = primary if victim == "primary" else replica
            strace = subprocess.Popen(
                ["strace", "-f", "-o", "/dev/null", "-p", str(brokers[name].pid),
                 "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=20"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                assert brokers[name].wait() == EXIT_FAILED, brokers.log(name)
            finally:
                strace.send_signal(signal.SIGTERM)
                strace.wait(10)
            brokers.kill(name)
            load.sent(MORE)
            brokers.start(name)
            brokers.wait_until_whole()
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)


@pytest.mark.timeout(240)
def test_the_disk_of_the_primary_fails(memory_folder, verdicts):
    """The blocks of its next segment are gone: it resigns, and the member takes over."""
    need_root("mkfs.ext4", "filefrag", "fallocate")
    record = memory_folder / "history"
    with contextlib.ExitStack() as stack:
        small = stack.enter_context(Memory(memory_folder / "small", 80 << 20))
        volume = stack.enter_context(Volume(small.point / "volume", "ext4-whole"))
        data = {"a": volume.point / "data"}
        brokers = stack.enter_context(Brokers(memory_folder / "group", data=data))
        with GroupLoad(brokers.addresses, record) as load:
            load.sent(MORE)
            one = brokers["a"]
            one.stop()
            volume.punch(max((data["a"] / "journal").iterdir()))
            ballast = small.fill()
            one.go_on()
            assert one.wait() == EXIT_FAILED, one.log
            brokers.wait_for_primary("b")
            load.sent(MORE)
            brokers.kill("a")
            ballast.unlink()
            volume.again()
            brokers.start("a")
            brokers.wait_until_whole()
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)


@pytest.mark.timeout(240)
def test_the_disk_of_the_primary_does_not_answer(memory_folder, verdicts):
    """A sync that hangs: whoever leads afterwards, nothing that was answered is lost."""
    need_root("mkfs.ext4", "fsfreeze")
    record = memory_folder / "history"
    with contextlib.ExitStack() as stack:
        volume = stack.enter_context(Volume(memory_folder / "volume", "ext4"))
        data = {"a": volume.point / "data"}
        brokers = stack.enter_context(Brokers(memory_folder / "group", data=data))
        with GroupLoad(brokers.addresses, record) as load:
            load.sent(MORE)
            volume.freeze()
            brokers.wait_for_primary("b")
            load.sent(MORE)
            volume.thaw()
            wait_until(lambda: True, "thawed")
            if brokers["a"].ended:
                brokers.kill("a")
                brokers.start("a")
            brokers.wait_until_whole()
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)
