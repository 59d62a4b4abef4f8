"""A program that archives what there is, then ends: to be killed on the way.

Imports no more than it needs: without ``--spark`` there is no Java, and none of its start.
"""

from __future__ import annotations

import argparse
import time

from ternmq.client.bulk import Bulk, BulkOptions
from ternmq.pipeline.archive.archive import ArchiveJob
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.tables.folder import Folder

WAIT_S = 450


def now_us() -> int:
    return time.time_ns() // 1000


def with_spark(port: str, tables: str) -> None:
    import ternmq.spark
    from ternmq.pipeline.archive.spark import ArchiveStream
    from tests.spark.queries import finish

    spark = ternmq.spark.session(
        "archiver",
        master="local[2]",
        settings={"spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g"},
    )
    options = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "subscribe": "orders",
        "maxOffsetsPerTrigger": "100",
    }
    stream = ArchiveStream(spark, tables, options, now_us)
    finish(lambda: stream.start(once=True), wait_s=WAIT_S)


def without(port: str, tables: str) -> None:
    with Bulk(BulkOptions(url=f"ternmq://127.0.0.1:{port}")) as broker:
        # Passes of the least size: many commits, each of a few rows.
        ArchiveJob(broker, Archive(Folder(tables)), pass_bytes=1).once(now_us())


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", required=True)
    arguments.add_argument("--tables", required=True)
    arguments.add_argument("--spark", action="store_true")
    given = arguments.parse_args()
    (with_spark if given.spark else without)(given.port, given.tables)


if __name__ == "__main__":
    main()
