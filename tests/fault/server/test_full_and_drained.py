"""A small disk is filled, everything is consumed, and sends are taken again, whatever came between.

Nothing grows on such a disk: what the broker has to write for its oldest file to go comes out of
the reserve. Once it did not, and sends stayed refused for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

import ternmq
from ternmq.wire.control import Status
from tests.fault.processes import patience, wait_until
from tests.fault.server.broker import APP, TOKEN, Broker
from tests.fault.tools import need_root
from tests.fault.volumes import Memory

pytestmark = [pytest.mark.fault, pytest.mark.slow]

VOLUME: Final = 96 << 20
BODY: Final = 400_000
AT_ONCE: Final = 16
AGAIN_SECONDS: Final = 10.0
"""On a machine that has the time: some looks, two sets, a few segments to remove."""
KILLS: Final = 5


class Disk:
    """The volume, the broker on it, and what was sent and acked."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self.folder = folder
        self.logs = logs
        self.sent = 0
        self.acked: set[int] = set()
        self.broker = self._start()
        asyncio.run(self._make())

    async def _make(self) -> None:
        async with self.connect() as client:
            await client.admin.create_topic("t", retention=timedelta(seconds=1))
            await client.admin.create_group("t", "g")

    def _start(self) -> Broker:
        return Broker(self.folder, self.logs, segment="4MiB", log_level="warning")

    def connect(self) -> ternmq.Client:
        address = self.broker.ready()
        return ternmq.connect(f"ternmq://{address.host}:{address.port}", app=APP, token=TOKEN)

    def kill(self) -> None:
        """SIGKILL, and start again."""
        self.broker.kill()
        self.broker = self._start()
        self.broker.ready()

    def restart(self) -> None:
        """Stop cleanly, and start again."""
        self.broker.terminate()
        assert self.broker.wait() == 0, self.broker.log
        self.broker = self._start()
        self.broker.ready()

    async def fill(self) -> None:
        """Send until there is no room."""
        async with self.connect() as client:
            while True:
                sends = [client.send("t", self._body(one)) for one in range(AT_ONCE)]
                done = await asyncio.gather(*sends, return_exceptions=True)
                refused = [one for one in done if isinstance(one, BaseException)]
                assert all(isinstance(one, ternmq.DiskFull) for one in refused), refused
                self.sent += AT_ONCE - len(refused)
                if refused:
                    return

    def _body(self, number: int) -> bytes:
        return number.to_bytes(8, "little") * (BODY // 8)

    async def drain(self, upto: int) -> None:
        """Consume and ack until so many were acked."""
        async with self.connect() as client, client.consume("t", group="g") as deliveries:
            while len(self.acked) < upto:
                delivery = await anext(deliveries)
                await delivery.ack()
                assert delivery.offset is not None
                self.acked.add(delivery.offset)

    async def takes(self) -> bool:
        """Tell whether a send is taken."""
        async with self.connect() as client:
            try:
                await client.send("t", self._body(0))
            except ternmq.DiskFull:
                return False
            return True

    async def status(self) -> Status:
        async with self.connect() as client:
            return await client.admin.status()

    async def status_of_a_stranger(self) -> Status:
        """Return what an app is told that has a right on another topic only."""
        async with self.connect() as client:
            token = await client.admin.put_app(
                "stranger", [ternmq.GrantInfo(right="produce", topic="other")]
            )
        address = self.broker.ready()
        url = f"ternmq://{address.host}:{address.port}"
        async with ternmq.connect(url, app="stranger", token=token) as client:
            return await client.admin.status()


def nothing(disk: Disk) -> None:
    """Nothing comes between."""


def killed_again_and_again(disk: Disk) -> None:
    """No kill costs so much of the reserve that the last finds none."""
    for _ in range(KILLS):
        disk.kill()


@pytest.mark.timeout(300)
@pytest.mark.row("C14")
@pytest.mark.parametrize(
    "between",
    [nothing, Disk.restart, Disk.kill, killed_again_and_again],
    ids=lambda one: one.__name__,
)
def test_a_disk_that_was_full_takes_sends_again(
    between: Callable[[Disk], None], memory_folder: Path
) -> None:
    need_root()
    with Memory(memory_folder / "volume", VOLUME) as volume:
        disk = Disk(volume.point / "data", memory_folder / "logs")
        try:
            for _ in range(2 if between is nothing else 1):  # what helped once may not help again
                disk.sent = 0
                disk.acked.clear()
                asyncio.run(disk.fill())
                assert disk.sent * BODY > VOLUME // 3
                between(disk)
                asyncio.run(disk.drain(disk.sent // 2))
                between(disk)
                asyncio.run(disk.drain(disk.sent))
                between(disk)
                wait_until(
                    lambda: asyncio.run(disk.takes()),
                    "a send is taken",
                    AGAIN_SECONDS * patience(),
                )
                asyncio.run(disk.drain(disk.sent + 1))
        finally:
            disk.broker.kill()


@pytest.mark.timeout(120)
@pytest.mark.row("C14")
def test_status_says_what_keeps_the_oldest_file(memory_folder: Path) -> None:
    need_root()
    with Memory(memory_folder / "volume", VOLUME) as volume:
        disk = Disk(volume.point / "data", memory_folder / "logs")
        try:
            asyncio.run(disk.fill())

            def told() -> bool:
                found = asyncio.run(disk.status())
                file = found.oldest_file
                return (file.kept_by, file.topic, file.group) == ("group", "t", "g") and bool(
                    found.metrics['ternmq_oldest_file_kept{by="group"}']
                )

            wait_until(told, "the group is named", AGAIN_SECONDS * patience())
            assert asyncio.run(disk.status()).oldest_file.sends_refused
            hidden = asyncio.run(disk.status_of_a_stranger()).oldest_file
            assert (hidden.kept_by, hidden.topic, hidden.group) == ("group", "", "")
            wait_until(
                lambda: "group g has not finished its messages of topic t" in disk.broker.log,
                "the log says it",
            )
            asyncio.run(disk.drain(disk.sent))
            wait_until(
                lambda: not asyncio.run(disk.status()).oldest_file.sends_refused,
                "sends are taken",
                AGAIN_SECONDS * patience(),
            )
            wait_until(lambda: "there is room again" in disk.broker.log, "the log says it")
        finally:
            disk.broker.kill()
