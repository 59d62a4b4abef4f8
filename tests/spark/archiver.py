"""A program that archives what there is, then ends: to be killed on the way.

Imports no more than it needs: without ``--spark`` there is no Java, and none of its start.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from ternmq.client.bulk import Bulk, BulkOptions
from ternmq.client.connection.address import Address
from ternmq.pipeline.archive.archive import ArchiveJob
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.tables.folder import Folder
from ternmq.spark.broker.connecting import Broker
from tests.spark.sessions import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def now_us() -> int:
    return time.time_ns() // 1000


def archive(port: str, tables: str, spark: SparkSession | None) -> None:
    """Archive in passes of the least size: a commit for about a megabyte of each queue."""
    folder = Folder(tables)
    workers = None
    if spark is not None:
        from ternmq.pipeline.archive.spark import SparkWorkers

        workers = SparkWorkers(spark, folder.uri, Broker((Address("127.0.0.1", int(port)),)), 0)
    with Bulk(BulkOptions(url=f"ternmq://127.0.0.1:{port}")) as broker:
        ArchiveJob(broker, Archive(folder), pass_bytes=1, workers=workers).once(now_us())


def session() -> SparkSession:
    import ternmq.spark

    return ternmq.spark.session("archiver", master="local[2]", settings=SETTINGS)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", required=True)
    arguments.add_argument("--tables", required=True)
    arguments.add_argument("--spark", action="store_true")
    given = arguments.parse_args()
    archive(given.port, given.tables, session() if given.spark else None)


if __name__ == "__main__":
    main()
