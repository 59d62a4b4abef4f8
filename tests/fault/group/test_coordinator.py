"""The coordinator of a broker group is away (REP-5): the pair goes on, and only cannot change."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import coordinators
from tests.fault.group.brokers import Brokers
from tests.fault.group.checks import sound
from tests.fault.group.load import GroupLoad
from tests.fault.group.tools import passed, seconds
from tests.fault.processes import wait_until

pytestmark = [pytest.mark.fault, pytest.mark.slow]

MORE = 60
KINDS = ("sqlite", "postgresql", "mariadb", "zookeeper")
NAMES = {"postgresql": "PostgreSQL", "mariadb": "MariaDB", "zookeeper": "ZooKeeper"}

Away = Callable[[], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a lock on a SQLite file, so that nobody else changes anything."""
    with contextlib.closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as one:
        one.execute("BEGIN EXCLUSIVE")
        yield
        one.execute("ROLLBACK")


@contextlib.contextmanager
def stopped(server: coordinators.Server) -> Iterator[None]:
    """Let a server answer nothing."""
    server.stop()
    try:
        yield
    finally:
        server.go_on()


@contextlib.contextmanager
def group_of(kind: str, folder: Path) -> Iterator[tuple[Brokers, Away]]:
    """A broker group with a coordinator, and what makes that one unavailable."""
    if kind == "sqlite":
        with Brokers(folder) as brokers:
            yield brokers, lambda: locked(brokers.file)
        return
    with getattr(coordinators, kind)() as found:
        server = found[0] if isinstance(found, list) else found
        if server is None:
            pytest.skip(f"needs {NAMES[kind]}")
        with Brokers(folder, cluster=server.url) as brokers:
            yield brokers, lambda: stopped(server)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_the_coordinator_is_away(kind, memory_folder, verdicts):
    """Clients notice nothing. Then a half dies meanwhile: the rest waits for the coordinator."""
    record = memory_folder / "history"
    with group_of(kind, memory_folder / "group") as (brokers, away):
        with GroupLoad(brokers.addresses, record) as load:
            load.sent(MORE)
            before = brokers.record()
            assert before is not None
            primary, replica = brokers.primary, brokers.other
            with away():
                over = passed(seconds(5.0, 30.0))
                while not over():
                    load.sent(10)
                    load.settled(2)
                assert load.losses == 0
                brokers.kill(replica)
                wait_until(lambda: "does not answer" in brokers.log(primary), "it is asked")
            load.sent(MORE)
            after = brokers.record()
            assert after is not None
            assert (after.primary, after.epoch) == (before.primary, before.epoch)
            brokers.start(replica)
            brokers.wait_until_whole()
            brokers.kill(primary)
            load.sent(MORE)
            brokers.start(primary)
            brokers.wait_until_whole()
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_the_primary_is_killed_while_the_coordinator_is_away(kind, memory_folder, verdicts):
    """Nobody leads until it is back; then the member does."""
    record = memory_folder / "history"
    with group_of(kind, memory_folder / "group") as (brokers, away):
        with GroupLoad(brokers.addresses, record) as load:
            load.sent(MORE)
            primary, replica = brokers.primary, brokers.other
            with away():
                brokers.kill(primary)
                wait_until(lambda: "does not answer" in brokers.log(replica), "it is asked")
                sent = load.counts.sent
                wait_until(passed(seconds(4.0, 30.0)), "longer than the lease")
                assert load.counts.sent == sent
            brokers.wait_for_primary(replica)
            load.sent(MORE)
            brokers.start(primary)
            brokers.wait_until_whole()
            load.stop_sending()
            load.drained()
        sound(brokers, verdicts, record)
