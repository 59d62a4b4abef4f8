"""A broker process whose retention removes messages within seconds, as far as a test lets it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Self

from google_crc32c import value as crc32c

import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until

SEGMENT: int = 4 << 20
ROW_BYTES: int = 8 << 10

Row = tuple[str, int, int, int]
"""Topic, queue, offset, checksum of the body."""


class Expiring:
    """A topic whose first rows go when the test says so, and whose later ones stay.

    A hold keeps the later ones. What goes is decided by the broker, in whole segments: the last of
    the first rows stay too.

    Attributes:
        real: The broker.
        client: A client of it.
        sent: The rows of ``orders``.
    """

    def __init__(self, real: BrokerProcess, client: ternmq.sync.Client) -> None:
        self.real = real
        self.client = client
        self.sent: set[Row] = set()
        self._count = 0
        self._stays = 0
        client.admin.put_hold("later", 0)
        client.admin.create_topic(
            "orders", queues=2, retention=timedelta(seconds=1), keep_until_consumed=False
        )
        client.admin.create_topic(
            "others", retention=timedelta(seconds=1), keep_until_consumed=False
        )

    def fill(self, first: int, later: int) -> Self:
        """Send rows that may go, then rows that stay."""
        self._send(first)
        self._stays = int(self.real.metric("ternmq_journal_end"))
        self._send(later)
        self.sent = {
            (one.topic, one.queue, one.offset, crc32c(one.body))
            for one in self.client.read("orders")
        }
        assert len(self.sent) == first + later
        return self

    def _send(self, count: int) -> None:
        for number in range(self._count, self._count + count):
            body = b"%d " % number + bytes(ROW_BYTES)
            self.client.send("orders", body, queue=number % 2)
        self._count += count

    def expire(self) -> None:
        """Let the first rows go; returns when retention has removed their segments."""
        self.client.admin.put_hold("later", self._stays)
        until = self._stays - self._stays % SEGMENT
        assert until, "all of it is in one segment"

        def removed() -> bool:
            self.client.send_many("others", [bytes(1 << 10)] * 500)
            return self.real.metric("ternmq_journal_first") >= until

        wait_until(removed, f"the journal begins at {until}")

    def firsts(self) -> list[int]:
        """Return the oldest offset of each queue that is kept."""
        return [one.first for one in self.client.admin.topic("orders").queues]

    def kept(self) -> Counter[Row]:
        """Return the rows that are there still, each once."""
        firsts = self.firsts()
        return Counter(row for row in self.sent if row[2] >= firsts[row[1]])


@contextmanager
def expiring(folder: Path) -> Iterator[Expiring]:
    """Run such a broker."""
    settings = {"segment": "4MiB", "state": "1MiB"}
    # No segment goes while deduplication remembers what is in it.
    settings |= {"limits_send_timeout": "1s", "limits_dedup_window": "2s"}
    with (
        BrokerProcess("dev", folder, http=True, **settings) as real,
        ternmq.sync.connect(real.url) as client,
    ):
        yield Expiring(real, client)
