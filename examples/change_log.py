"""A change log replayed into a table: row changes of one database, in order, into another.

    ternmq dev                                              # a broker, in one terminal
    python examples/change_log.py publish source.db         # read the log of changes, send it
    python examples/change_log.py replay replica.db         # any number of these; Ctrl-C ends one

Triggers of the source database write each change of a row into a log. Each queue has the changes of
some rows: the key decides which. The queues are owned (mode "owned"): each belongs to one process,
which applies its changes one after the other. The number of the last change is stored in the same
transaction as the row, so a change that comes again is not applied twice. When processes come and
go, the queues change hands, and the order stays.
"""

import asyncio
import json
import sqlite3
import sys
import zlib
from contextlib import closing
from typing import Any

import ternmq

QUEUES = 4
SOURCE = """
CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, owner TEXT, cents INTEGER);
CREATE TABLE IF NOT EXISTS changes (number INTEGER PRIMARY KEY, id INTEGER, new TEXT);
CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON accounts BEGIN
    INSERT INTO changes (id, new) VALUES (new.id, json_array(new.id, new.owner, new.cents)); END;
CREATE TRIGGER IF NOT EXISTS changed AFTER UPDATE ON accounts BEGIN
    INSERT INTO changes (id, new) VALUES (new.id, json_array(new.id, new.owner, new.cents)); END;
CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON accounts BEGIN
    INSERT INTO changes (id, new) VALUES (old.id, NULL); END;
"""
REPLICA = """
CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, owner TEXT, cents INTEGER);
CREATE TABLE IF NOT EXISTS applied (queue INTEGER PRIMARY KEY, number INTEGER);
"""


async def publish(path: str) -> None:
    """Send all changes of the log; sending it again sends nothing twice."""
    with closing(sqlite3.connect(path)) as source:
        changes = source.execute("SELECT number, id, new FROM changes ORDER BY number").fetchall()
    async with ternmq.connect() as client:
        await client.admin.create_topic("accounts", queues=QUEUES)
        await client.admin.create_group("accounts", "replica", mode="owned")
        for number, id_, new in changes:
            row = None if new is None else json.loads(new)
            await client.send(
                "accounts",
                {"number": number, "id": id_, "row": row},
                queue=zlib.crc32(b"%d" % id_) % QUEUES,  # the changes of a row stay in its queue
                id=f"change-{number}",
            )
    print(f"{len(changes)} changes are sent", flush=True)


def apply(replica: sqlite3.Connection, queue: int, change: dict[str, Any]) -> None:
    """Apply a change, unless it was applied before: one transaction."""
    with replica:
        replica.execute("BEGIN IMMEDIATE")
        found = replica.execute("SELECT number FROM applied WHERE queue = ?", (queue,)).fetchone()
        if found is not None and change["number"] <= found[0]:
            return  # it came again: its ack was not stored
        if change["row"] is None:
            replica.execute("DELETE FROM accounts WHERE id = ?", (change["id"],))
        else:
            replica.execute("INSERT OR REPLACE INTO accounts VALUES (?, ?, ?)", change["row"])
        replica.execute("INSERT OR REPLACE INTO applied VALUES (?, ?)", (queue, change["number"]))


async def replay(path: str) -> None:
    """Apply what comes, for as long as it comes."""
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as replica:
        replica.executescript(REPLICA)
        async with ternmq.connect() as client:

            @client.on_assigned
            def say(assigned: ternmq.AssignedQueues) -> None:
                print("this process owns queues", list(assigned.queues), flush=True)

            async with client.consume("accounts", group="replica") as deliveries:
                async for delivery in deliveries:
                    async with delivery.process():
                        apply(replica, delivery.queue, delivery.value)


if __name__ == "__main__":
    run, database = {"publish": publish, "replay": replay}[sys.argv[1]], sys.argv[2]
    try:
        asyncio.run(run(database))
    except KeyboardInterrupt:
        pass
