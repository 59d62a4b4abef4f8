"""What must not be there: a wrong token, another folder, one name twice, a coordinator that forgot.

Whoever is wrong says what is wrong in one line, changes nothing and ends; clients of the others
notice nothing.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.fault.group.brokers import CLUSTER_TOKEN, Brokers
from tests.fault.group.checks import extent, sound
from tests.fault.group.load import GroupLoad
from tests.fault.processes import wait_until
from tests.fault.server.broker import Broker
from tests.fault.server.tools import SMALL

pytestmark = [pytest.mark.fault, pytest.mark.slow]

MORE = 60
EXIT_SETTINGS = 2


def stranger(brokers: Brokers, data: Path, name: str, **settings: str) -> Broker:
    """Start a process that does not belong there, in a folder of its own."""
    given = {"token": CLUSTER_TOKEN} | settings
    return Broker(
        data,
        brokers.folder / f"logs-{data.name}",
        name=name,
        cluster=brokers.cluster,
        cluster_token=given["token"],
        broker_group=given.get("group", "main"),
        **(SMALL | {"log_level": "info"}),
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(folder)): one.read_bytes()
        for one in sorted(folder.rglob("*"))
        if one.is_file() and one.name not in {"lock", "LOCK"}
    }


def refused(one: Broker, *words: str) -> None:
    """Check that a process ends by itself, with one line that has these words."""
    with one:
        assert one.wait() == EXIT_SETTINGS, one.log
        lines = [line for line in one.log.splitlines() if line.startswith("ternmq: ")]
        assert len(lines) == 1, one.log
        assert all(word in lines[0] for word in words), one.log
        assert "Traceback" not in one.log


@pytest.mark.timeout(240)
def test_who_does_not_belong_there(memory_folder, verdicts):
    """Each of them comes while clients are served, and none of them is heard."""
    record, folder = memory_folder / "history", memory_folder / "strangers"
    folder.mkdir()
    with Brokers(memory_folder / "group") as brokers:
        with GroupLoad(brokers.addresses, record) as load:
            load.sent(MORE)
            before = brokers.record()
            primary, replica = brokers.primary, brokers.other
            for name in (primary, replica):  # beside their origin
                shutil.copytree(brokers.data[name], folder / f"copied-{name}")
                kept = contents(folder / f"copied-{name}")
                refused(stranger(brokers, folder / f"copied-{name}", name), "have the name")
                assert contents(folder / f"copied-{name}") == kept
            refused(stranger(brokers, folder / "empty", replica), "have the name", replica)
            refused(stranger(brokers, folder / f"copied-{primary}", "c"), f"broker '{primary}'")
            elsewhere = f"sqlite:///{folder / 'other.db'}"
            with Brokers(folder / "other", names=("c",), cluster=elsewhere) as others:
                others.kill("c")
            kept = contents(others.data["c"])
            refused(stranger(brokers, others.data["c"], "c"), "another journal")
            assert contents(others.data["c"]) == kept
            with stranger(brokers, folder / "token", "d", token="f" * 32) as one:
                wait_until(lambda: "the token is not that of the cluster" in one.log, "refused")
            assert brokers.record() == before
            assert load.losses == 0
            load.sent(MORE)
            load.stop_sending()
            load.drained()
            assert not load.counts.refused
        sound(brokers, verdicts, record)


@pytest.mark.timeout(240)
def test_an_old_copy_of_the_folder_in_the_place_of_the_primarys(memory_folder, verdicts):
    """It leads nobody: the member, which has what was answered, takes over."""
    record, old = memory_folder / "history", memory_folder / "old"
    with Brokers(memory_folder / "group") as brokers:
        with GroupLoad(brokers.addresses, record) as load:
            load.sent(MORE)
            primary, replica = brokers.primary, brokers.other
            shutil.copytree(brokers.data[primary], old)
            load.sent(4 * MORE)
            brokers.kill(primary)
            newer = brokers.data[primary].rename(memory_folder / "newer")
            old.rename(brokers.data[primary])
            one = brokers.begin(primary)
            brokers.wait_for_primary(replica)
            load.sent(MORE)
            if one.ended:  # else it was late, and has followed from the start
                assert "older than what was answered" in one.log, one.log
                brokers.kill(primary)
                shutil.rmtree(brokers.data[primary])
                newer.rename(brokers.data[primary])
                brokers.start(primary)
            brokers.wait_until_whole()
            load.sent(MORE)
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("what", ["empty", "garbage", "gone"])
def test_a_coordinator_that_cannot_be_believed(what, memory_folder, verdicts):
    """The pair goes on; who starts meanwhile does nothing; with the record back all is well."""
    record = memory_folder / "history"
    with Brokers(memory_folder / "group") as brokers:
        with GroupLoad(brokers.addresses, record) as load:
            load.sent(MORE)
            primary, replica = brokers.primary, brokers.other
            kept = spoiled(brokers, what)
            wait_until(lambda: "a record that is not valid" in brokers.log(primary), "it was read")
            load.sent(2 * MORE)
            load.settled(10)
            brokers.kill(replica)
            found = extent(brokers.data[replica])
            one = brokers.begin(replica)
            if what == "garbage":
                wait_until(lambda: "a record that is not valid" in one.log, "it was read")
                assert not one.ended
            else:
                assert one.wait() == EXIT_SETTINGS
                assert "the coordinator has no record" in one.log
            assert extent(brokers.data[replica]) == found
            assert brokers.record() is None
            put_back(brokers, kept)
            if what != "garbage":
                brokers.running.pop(replica)
                brokers.start(replica)
            brokers.wait_until_whole()
            assert brokers.primary == primary
            load.sent(MORE)
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)


Rows = list[tuple[str, int, bytes]]


def spoiled(brokers: Brokers, what: str) -> Rows:
    """Have the coordinator hold something else; return what it held."""
    with contextlib.closing(sqlite3.connect(brokers.file, timeout=30)) as one, one:
        one.execute("BEGIN IMMEDIATE")
        kept = one.execute("SELECT * FROM ternmq_leadership").fetchall()
        if what == "garbage":
            # Under the version that it has, the primary's next change would replace it.
            change = "UPDATE ternmq_leadership SET value = ?, version = version + 1000"
            one.execute(change, (b"\xc1garbage" * 9,))
        else:
            one.execute("DELETE FROM ternmq_leadership")
        if what == "empty":
            one.execute("DELETE FROM ternmq_announced")
    return kept


def put_back(brokers: Brokers, kept: Rows) -> None:
    """Have the coordinator hold again what it held."""
    with contextlib.closing(sqlite3.connect(brokers.file, timeout=30)) as one, one:
        one.execute("BEGIN IMMEDIATE")
        one.execute("DELETE FROM ternmq_leadership")
        marks = ", ".join("?" * len(kept[0]))
        one.executemany(f"INSERT INTO ternmq_leadership VALUES ({marks})", kept)
