"""Rows of MISSION, journal and broker: shown with one broker process, from outside."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until

SEGMENT = 4 * 1024 * 1024


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess("dev", tmp_path / "broker", segment="4MiB") as broker:
        yield broker


def fill(client: ternmq.sync.Client, topic: str, kib: int) -> None:
    """Store so many messages of a KiB."""
    client.send_many(topic, [bytes([n % 251]) * 1024 for n in range(kib)])


@pytest.mark.row("C1")
def test_one_journal_of_fixed_size_files_named_by_position(broker: BrokerProcess) -> None:
    """Two topics, one row of files."""
    with ternmq.sync.connect(broker.url) as client:
        for _ in range(20):
            fill(client, "orders", 512)
            fill(client, "prices", 512)
    assert broker.stop() == 0
    files = sorted(broker.data.rglob("*.seg"))
    assert len({file.parent for file in files}) == 1
    positions = [int(re.fullmatch(r"0*(\d+)", file.stem)[1]) for file in files]  # type: ignore[index]
    assert len(files) >= 5
    assert [file.stat().st_size for file in files[:-1]] == [SEGMENT] * (len(files) - 1)
    assert positions == [positions[0] + SEGMENT * n for n in range(len(files))]


@pytest.mark.row("C5")
def test_without_its_index_files_it_has_the_same_messages(broker: BrokerProcess) -> None:
    with ternmq.sync.connect(broker.url) as client:
        for number in range(12):
            fill(client, "orders", 1000)
            client.send("orders", b"marked", key=f"k-{number}", id=f"id-{number}")
        wait_until(lambda: any(broker.data.rglob("*.idx")), "an index file")

        def picture() -> list[object]:
            whole = [(one.queue, one.offset, one.id, one.body[:8]) for one in client.read("orders")]
            found = [client.find("orders", key=f"k-{n}")[0].offset for n in range(12)]
            own = [client.get("orders", f"id-{n}").offset for n in range(12)]
            return [whole, found, own]

        before = picture()
        broker.stop()
        for file in broker.data.rglob("*.idx"):
            file.unlink()
        broker.start()
        assert picture() == before


@pytest.mark.row("C8", "C10")
def test_acks_survive_a_kill_and_change_no_index(broker: BrokerProcess) -> None:
    with ternmq.sync.connect(broker.url) as client:
        fill(client, "orders", 9000)  # two whole segments, and a part of the third
        wait_until(lambda: len([*broker.data.rglob("*.idx")]) == 2, "both index files")
        broker.restart()

        def indexes() -> dict[str, tuple[int, int]]:
            return {
                file.name: (file.stat().st_size, file.stat().st_mtime_ns)
                for file in broker.data.rglob("*.idx")
            }

        before = indexes()
        for _ in range(10):
            client.pull("orders", group="g", max_messages=100).ack()
        assert indexes() == before
        broker.restart(kill=True)
        assert client.pull("orders", group="g", max_messages=1)[0].offset == 1000


@pytest.mark.row("L2", "F11", "E7")
def test_seventy_groups_get_everything(broker: BrokerProcess) -> None:
    with ternmq.sync.connect(broker.url) as client:
        bodies = [b"%d" % n for n in range(500)]
        client.send_many("orders", bodies)
        for group in range(70):
            got: list[bytes] = []
            while len(got) < len(bodies):
                batch = client.pull("orders", group=f"g-{group}", max_messages=500, wait=10)
                got += batch.bodies
                batch.ack()
            assert got == bodies
        lags = {one.group: sum(q.lag for q in one.queues) for one in client.admin.groups("orders")}
        assert len(lags) == 70
        assert not any(lags.values())


@pytest.mark.row("C9", "L2")
def test_seventy_groups_have_one_index(
    tmp_path: Path, make_broker: Callable[[str], BrokerProcess]
) -> None:
    """The same messages with one group and with seventy: index files of the same size."""
    sizes: list[dict[str, int]] = []
    for groups in (1, 70):
        broker = make_broker(f"with-{groups}")
        with ternmq.sync.connect(broker.url) as client:
            for group in range(groups):
                client.admin.create_group("orders", f"g-{group}")
            for _ in range(9):
                fill(client, "orders", 1000)
            for group in range(groups):
                client.pull("orders", group=f"g-{group}", max_messages=50).ack()
            wait_until(lambda broker=broker: len([*broker.data.rglob("*.idx")]) >= 2, "two")  # type: ignore[misc]
        broker.stop()
        sizes.append({f.name: f.stat().st_size for f in sorted(broker.data.rglob("*.idx"))[:2]})
    one, seventy = (sum(size.values()) for size in sizes)
    assert abs(seventy - one) <= 0.02 * one


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[[str], BrokerProcess]]:
    made: list[BrokerProcess] = []

    def make(name: str) -> BrokerProcess:
        made.append(BrokerProcess("dev", tmp_path / name, segment="4MiB").start())
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.mark.row("A3")
def test_one_process_one_folder_does_it_all(broker: BrokerProcess, tmp_path: Path) -> None:
    """Send, consume, retry, dead letters, order, look-up, restart; nothing else is needed."""
    with ternmq.sync.connect(broker.url) as client:
        client.send("orders", {"n": 1}, key="k")
        (one,) = client.pull("orders", group="g")
        one.retry(delay=0.1, reason="first")
        (one,) = client.pull("orders", group="g", wait=10)
        one.reject("for good")
        client.admin.create_topic("steps", ordered=True)
        client.send_many("steps", [ternmq.Message(b"%d" % n, ordering_key="k") for n in range(9)])
        broker.restart()
        assert [dead.reason for dead in client.deadletters.browse("orders", "g")] == ["for good"]
        assert client.find("orders", key="k")[0].value == {"n": 1}
        steps = client.pull("steps", group="g", mode="ordered")
        assert steps.bodies == [b"%d" % n for n in range(9)]
        steps.ack()
    assert {path.name for path in (tmp_path / "broker").iterdir()} == {"data", "log"}
