"""Batches into SQLite: one transaction a batch, and each message counts once.

    ternmq dev                                          # a broker, in one terminal
    python examples/sqlite_consumer.py readings.db      # in another; Ctrl-C ends it

A batch is acked after its transaction committed. If the process dies between the two, the batch
comes again, and the primary key (the message's id) lets nothing be stored twice.
"""

import asyncio
import sqlite3
import sys
from contextlib import closing

import ternmq


def store(database: sqlite3.Connection, batch: ternmq.Deliveries) -> int:
    """Store a batch in one transaction; return how many rows are new."""
    rows = [(one.id, one.value["sensor"], one.value["celsius"]) for one in batch]
    with database:  # commits, or rolls back
        before = database.total_changes
        database.executemany("INSERT OR IGNORE INTO readings VALUES (?, ?, ?)", rows)
        return database.total_changes - before


async def consume(path: str) -> None:
    """Store what comes, for as long as it comes."""
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS readings"
            " (message_id TEXT PRIMARY KEY, sensor TEXT, celsius REAL)"
        )
        async with ternmq.connect() as client:
            batches = client.consume_batches(
                "readings", group="warehouse", max_messages=500, max_wait=0.5
            )
            async for batch in batches:
                async with batch.process():  # leaving acks; an exception brings the batch again
                    new = store(database, batch)
                    print(f"{len(batch)} messages, {new} new", flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(consume(sys.argv[1] if len(sys.argv) > 1 else "readings.db"))
    except KeyboardInterrupt:
        pass
