"""Scheduled messages as a program sends them that makes its batches itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from ternmq.client.connection.address import Address
from ternmq.pipeline.audit.schema import BUCKET_US
from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.spark.broker.bulk_port import BulkPort
from ternmq.spark.broker.connecting import Broker
from ternmq.spark.broker.port import Outgoing
from ternmq.testing import InProcessBroker

LATER_S = 45 * 60
"""So much later, what clients send now is judged, in whatever window they do."""


def at_the_time_of_clients(timed: InProcessBroker) -> None:
    """Move the broker's time to that of the clients, where ten minutes begin.

    Clients tell when a message was born, and the audit leaves out what no clock is right about.
    """
    now_us = time.time_ns() // 1000
    timed.clock.advance(seconds=(now_us - now_us % BUCKET_US - timed.clock.wall_us()) / 1e6)


class Scheduler:
    """Sends batches, each by a producer of its own, which reports that these were all."""

    def __init__(self, port: int, producer: int = 7) -> None:
        self._port = port
        self._producer = producer

    def send(
        self,
        topic: str,
        due_us: Sequence[int],
        born_us: int,
        queue: int | None = None,
        name: str = "",
    ) -> list[str]:
        """Send a message for each due time, or if all are 0, ordinary ones; return their ids."""
        rows = [
            Row(body=b"due %d" % due, due_us=due, application_id=name and f"{name}{number}")
            for number, due in enumerate(due_us)
        ]
        batch = encode(
            rows,
            topic_seed=topic_seed(topic),
            producer_id=self._producer,
            first_sequence=1,
            born_us=born_us,
        )
        ids = [f"{self._producer:016x}:{1 + number:x}" for number in range(len(rows))]
        self._producer += 1
        with closing(BulkPort(Broker((Address("127.0.0.1", self._port),)))) as port:
            assert list(port.send([Outgoing(topic, queue, batch, len(rows))], 1)) == [len(rows)]
        return ids
