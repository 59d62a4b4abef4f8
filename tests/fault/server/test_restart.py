"""Single steps around a kill, a lost answer and damaged files, one row of the mission each."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ternmq.model.errors import TernMQError
from ternmq.record.fact.facts import Outcome
from ternmq.wire import control
from ternmq.wire.commands import Command
from tests.fault.processes import patience, wait_until
from tests.fault.server.broker import Broker
from tests.fault.server.raw import Peer, Queue, offsets_of
from tests.fault.server.tools import SMALL

pytestmark = pytest.mark.fault

SECOND_US = 1_000_000
GRACE_S = 1.0
SETTINGS = {**SMALL, "log_level": "info", "limits_session_grace": f"{int(GRACE_S)}s"}


@contextlib.contextmanager
def broker_of(folder: Path) -> Iterator[tuple[Broker, Queue]]:
    """A broker on ``folder``, and a client of it."""
    with (
        Broker(folder / "data", folder / "logs", **SETTINGS) as broker,
        Peer(broker.ready(), name="steps") as peer,
    ):
        yield broker, Queue(peer)


def index_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of every index file."""
    found = {}
    for path in (folder / "data" / "index").glob("*"):
        with contextlib.suppress(FileNotFoundError):
            stat = path.stat()
            found[path.name] = stat.st_size, stat.st_mtime_ns
    return found


def settled_index(folder: Path) -> dict[str, tuple[int, int]]:
    """Wait until the index of what was sent is written; return its files."""
    seen, since = index_of(folder), time.monotonic()

    def same() -> bool:
        nonlocal seen, since
        now = index_of(folder)
        if now != seen:
            seen, since = now, time.monotonic()
        return len(seen) >= 2 and time.monotonic() - since > 1.0

    wait_until(same, "the index written")
    return seen


def fill(queue: Queue, rows: int = 6000) -> None:
    """Send enough for several segments, so that there are index files."""
    for first in range(0, rows, 500):
        while True:
            try:
                queue.send([b"%d:%b" % (first + row, b"x" * 1500) for row in range(500)], first)
            except TernMQError as error:
                if not error.retriable:
                    raise
            else:
                break


@pytest.mark.row("E11")
def test_rows_settled_out_of_order_stay_settled(memory_folder):
    with broker_of(memory_folder) as (broker, queue):
        queue.make(60 * SECOND_US)
        queue.send([b"%d" % number for number in range(8)])
        delivery = queue.pull(8, 1000)
        assert offsets_of(delivery) == list(range(8))
        assert queue.settle(delivery, [3, 5, 7]).rows == 3
        broker.kill()
    with broker_of(memory_folder) as (_, queue):
        came: list[int] = []
        until = time.monotonic() + 10
        while len(came) < 5 and time.monotonic() < until:
            came += offsets_of(queue.pull(8, 500))
        assert came == [0, 1, 2, 4, 6]
        assert not queue.pull(8, 100).lease


@pytest.mark.row("C8", "C10")
@pytest.mark.timeout(60)
def test_settles_touch_no_index_file_and_survive(memory_folder):
    with broker_of(memory_folder) as (broker, queue):
        queue.make(60 * SECOND_US)
        fill(queue)
        before = settled_index(memory_folder)
        done: list[int] = []
        while len(done) < 3000:
            delivery = queue.pull(1000)
            queue.settle(delivery)
            done += offsets_of(delivery)
        assert index_of(memory_folder) == before
        broker.kill()
    with broker_of(memory_folder) as (_, queue):
        delivery = queue.pull(1)
        assert offsets_of(delivery) == [len(done)]


@pytest.mark.row("C5")
@pytest.mark.timeout(60)
def test_every_index_file_deleted(memory_folder):
    def everything(queue: Queue) -> list[bytes]:
        found: list[bytes] = []
        offset = 0
        while True:
            rows = queue.read(offset)
            if rows.stop <= rows.start:
                return found
            found.append(rows.records)
            offset = rows.stop

    with broker_of(memory_folder) as (broker, queue):
        queue.make(60 * SECOND_US)
        fill(queue)
        settled_index(memory_folder)
        before = everything(queue)
        broker.kill()
    shutil.rmtree(memory_folder / "data" / "index")
    with broker_of(memory_folder) as (_, queue):
        assert b"".join(everything(queue)) == b"".join(before)


@pytest.mark.row("C7")
def test_a_torn_tail_is_cut_and_said(memory_folder):
    with broker_of(memory_folder) as (broker, queue):
        queue.make(60 * SECOND_US)
        receipts = [queue.send([b"whole %d" % number], number) for number in range(50)]
        broker.kill()
    written = memory_folder / "data" / "journal" / f"{0:020d}.seg"
    end = len(written.read_bytes().rstrip(b"\0")) + 8 & ~7
    with written.open("r+b") as file:
        file.seek(end)
        file.write(os.urandom(5000))
    with broker_of(memory_folder) as (broker, queue):
        rows = queue.read(0)
        assert (rows.start, rows.stop) == (0, len(receipts))
        assert all(b"whole %d" % number in rows.records for number in range(50))
        assert "off the journal's end" in broker.log, broker.log


@pytest.mark.row("F6")
def test_a_lost_answer_to_a_pull_comes_again(memory_folder):
    """The connection is cut while the answer is on its way: the same rows, in the same order."""
    with broker_of(memory_folder) as (broker, queue):
        queue.make(60 * SECOND_US)
        queue.send([b"x" * 20_000 for _ in range(40)])
        queue.send([b"later"], 40)
        address = broker.ready()
        lost = Peer(address, name="loser", window_bytes=4096)
        session = lost.welcome.session
        lost.begin(Command.PULL, queue.pull_body(40, 1000))
        assert lost.socket.recv(1000)
        lost.reset()
        with Peer(address, name="loser", resume=session) as again:
            assert again.welcome.resumed
            again.ask(Command.KEEP, control.encode(control.Keep(leases=[])))
            # New rows have their share of a pull: those that were lost come in two.
            came = [offset for _ in range(2) for offset in offsets_of(Queue(again).pull(40, 1000))]
        assert [offset for offset in came if offset < 40] == list(range(40))


@pytest.mark.row("F8")
def test_what_a_dead_consumer_held_comes_to_others(memory_folder):
    """Within the session's grace and a second, although its leases would last a minute."""
    with broker_of(memory_folder) as (broker, queue):
        queue.make(60 * SECOND_US)
        queue.send([b"%d" % number for number in range(20)])
        dead = Peer(broker.ready(), name="dead")
        assert len(offsets_of(Queue(dead).pull(15, 1000))) == 15
        dead.reset()
        died = time.monotonic()
        came: set[int] = set()
        while len(came) < 20:
            came.update(offsets_of(queue.pull(20, 500)))
            assert time.monotonic() < died + GRACE_S + 1.0 * patience(), came
        assert time.monotonic() > died + GRACE_S - 0.2


@pytest.mark.row("G2")
def test_a_restart_keeps_retries(memory_folder):
    """With their reason and count; they come when their time has come."""
    with broker_of(memory_folder) as (broker, queue):
        queue.make(60 * SECOND_US)
        queue.send([b"poison", b"fine"])
        delivery = queue.pull(2, 1000)
        queue.settle(delivery, [0], Outcome.RETRY, reason="no stock")
        queue.settle(delivery, [1])
        broker.kill()
    with broker_of(memory_folder) as (_, queue):
        asked = control.FailedList(topic=queue.topic, group=queue.group, dead=False)
        page = control.decode(
            queue.peer.ask(Command.FAILED_LIST, control.encode(asked)), control.FailedPage
        )
        assert [(row.offset, row.attempts, row.failures[0].reason) for row in page.rows] == [
            (0, 1, "no stock")
        ]
        delivery = queue.pull(2, 5000)
        assert offsets_of(delivery) == [0]
        assert delivery.runs[0].attempt == 2
