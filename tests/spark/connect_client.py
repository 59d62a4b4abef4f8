"""Every format, from a client of Spark Connect; prints what it found as JSON.

python -m tests.spark.connect_client URL TABLES FOLDER
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession


def main(url: str, tables: str, folder: str) -> dict[str, Any]:
    """Read, write and stream a topic; read a table and the journal."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    address = url.partition("://")[2]

    def options(made: Any, **more: str) -> Any:
        return made.options(**{"bootstrap.servers": address, **more})

    topic = options(spark.read.format("ternmq"), subscribe="orders").load()
    rows = topic.selectExpr("value", "cast(key as string) as key")
    options(rows.write.format("ternmq").mode("append"), topic="copy").save()
    stream = options(
        spark.readStream.format("ternmq"), subscribe="orders", startingOffsets="earliest"
    ).load()
    query = (
        stream.writeStream.format("memory").queryName("streamed").trigger(availableNow=True)
        .option("checkpointLocation", f"{folder}/checkpoint").start()
    )  # fmt: skip
    query.awaitTermination(120)
    journal = options(spark.read.format("ternmq.journal")).load()
    archive = spark.read.format("ternmq.table").option("tables", tables).load("archive")
    return {
        "session": type(spark).__module__,
        "read": topic.count(),
        "streamed": spark.sql("select * from streamed").count(),
        "stored": journal.where("kind = 'stored' and topic = 'orders'").groupBy().sum("rows")
        .collect()[0][0],
        "archived": archive.count(),
        "keys": sorted(row["key"] for row in archive.select("key").distinct().collect()),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
