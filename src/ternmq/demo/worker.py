"""A consumer process: ``python -m ternmq.demo.worker FOLDER GROUP PROCESS``.

It writes each handled message to its own file, syncs that, and only then acks; when the ack is
answered, it records that too. So whenever it is killed, its file has every message that it acked.
It prints its progress several times a second.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import ternmq
from ternmq.demo.plan import REASON, Consumers, Run, group_named
from ternmq.demo.records import (
    Acked,
    Began,
    Ended,
    Handled,
    SyncedFile,
    Unanswered,
    consumer_file,
    now_us,
    read_run,
)
from ternmq.demo.wires import tell

CONCURRENCY: Final = 256
_REPORT_EVERY: Final = 0.2
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Worker:
    """The handler of a group, with its counts."""

    def __init__(self, group: Consumers, run: Run, file: SyncedFile, client: ternmq.Client) -> None:
        self._client = client
        self._group = group
        self._run = run
        self._file = file
        self.handled = 0
        self.failed = 0
        self.acked = 0

    async def handle(self, delivery: ternmq.Delivery) -> None:
        """Handle a message: record it, then ack."""
        latency_us = time.time_ns() // 1000 - (delivery.born_at - _EPOCH) // _MICROSECOND
        begun_us = now_us()
        event = f"{delivery.key}/{delivery.value['event']}"
        failed = self._group.fails and self._run.doomed(event)
        topic, queue, offset = delivery.topic, delivery.queue, delivery.offset
        await self._file.write(
            Handled(
                event=event,
                checksum=zlib.crc32(delivery.body),
                topic=topic,
                queue=queue,
                offset=offset,
                attempt=delivery.attempt,
                deliveries=delivery.deliveries,
                suspect=delivery.maybe_redelivered,
                begun_us=begun_us,
                ended_us=now_us(),
                latency_us=latency_us,
                failed=failed,
            )
        )
        if failed:
            self.failed += 1
            raise ternmq.Retry(REASON)
        self.handled += 1
        try:
            await delivery.ack()
        except ternmq.TernMQError as error:
            self._file.note(Unanswered(topic, queue, offset, now_us(), str(error)))
            return
        self.acked += 1
        self._file.note(Acked(topic, queue, offset, now_us()))

    async def report(self) -> None:
        """Print the progress repeatedly, until it is cancelled."""
        while True:
            self.say()
            await asyncio.sleep(_REPORT_EVERY)

    def say(self) -> None:
        """Print the progress."""
        tell(
            connections=self._client.stats().connections_opened,
            handled=self.handled,
            failed=self.failed,
            acked=self.acked,
        )


async def main(folder: Path, group: Consumers, process: str) -> None:
    """Consume until SIGTERM."""
    file = SyncedFile(folder / consumer_file(process))
    await file.write(Began(process, group.name, os.getpid(), now_us()))
    client = ternmq.connect()
    worker = Worker(group, read_run(folder), file, client)
    for topic in group.topics:
        client.handler(topic, group=group.name, tags=group.tags or None, concurrency=CONCURRENCY)(
            worker.handle
        )
    reporting = asyncio.create_task(worker.report())
    await client.run()  # waits for the broker if it is not there
    reporting.cancel()
    worker.say()
    file.note(Ended(now_us()))
    await file.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main(Path(sys.argv[1]), group_named(sys.argv[2]), sys.argv[3]))
