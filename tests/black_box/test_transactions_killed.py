"""Transactions of writers whose broker is killed again and again: a batch is there once (TXN-2)."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess

BATCHES = 30
PARTS = 3


def write(client: ternmq.sync.Client, number: int, attempt: int, rows: int) -> None:
    """Write one batch as a stream does that may have written it before."""
    while True:
        try:
            found: list[ternmq.Prepared] = []
            for part in range(PARTS):
                bodies = [b"%d:%d:%d" % (number, part, row) for row in range(rows)]
                name = f"{part}/{attempt}"
                found += client.prepare(
                    "t", bodies, writer="stream", batch_id=number, part=name, timeout=60
                )
        except ternmq.TransactionDecided:
            found = []  # it was committed before the answer got lost
        try:
            client.commit_prepared("stream", number, found, digest=number * 7, timeout=60)
        except ternmq.UnknownTransaction:
            continue
        return


def test_every_batch_is_there_once_and_whole(tmp_path: Path) -> None:
    chance = random.Random(5)
    with BrokerProcess("dev", tmp_path, segment="4MiB", body="64KiB") as broker:
        over = threading.Event()
        failed: list[Exception] = []

        def stream() -> None:
            try:
                with ternmq.sync.connect(broker.url) as client:
                    for number in range(BATCHES):
                        write(client, number, 0, 40)
                        if chance.random() < 0.3:  # it dies here, and begins this batch again
                            write(client, number, 1, 40)
            except (ternmq.TernMQError, AssertionError) as error:
                failed.append(error)
            finally:
                over.set()

        thread = threading.Thread(target=stream)
        thread.start()
        kills = 0
        while not over.wait(chance.uniform(0.05, 0.5)):
            if kills < 12:
                broker.restart(kill=True)
                kills += 1
        thread.join()
        assert not failed, failed
        broker.restart(kill=True)
        with ternmq.sync.connect(broker.url) as client:
            bodies = [one.body for one in client.read("t")]
            wanted = [
                b"%d:%d:%d" % (number, part, row)
                for number in range(BATCHES)
                for part in range(PARTS)
                for row in range(40)
            ]
            assert bodies == wanted
            for number in range(BATCHES):
                done = client.commit_prepared("stream", number, [], digest=number * 7)
                assert done == ternmq.Committed(PARTS * 40, True)
