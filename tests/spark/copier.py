"""A program that copies a topic, batch by batch: into files, or into another topic."""

from __future__ import annotations

import argparse

import ternmq.spark

WAIT_S = 280


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", required=True)
    arguments.add_argument("--checkpoint", required=True)
    arguments.add_argument("--path")
    arguments.add_argument("--topic")
    given = arguments.parse_args()
    spark = ternmq.spark.session(
        "copier",
        master="local[2]",
        settings={"spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g"},
    )
    at = f"127.0.0.1:{given.port}"
    table = (
        spark.readStream.format("ternmq")
        .option("bootstrap.servers", at)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100)
        .option("metadataFields", "crc")
        .load()
    )
    if given.path:
        writer = table.writeStream.format("parquet").option("path", given.path)
    else:
        writer = (
            table.select("key", "value")
            .writeStream.format("ternmq")
            .option("bootstrap.servers", at)
            .option("topic", given.topic)
        )
    query = writer.option("checkpointLocation", given.checkpoint).trigger(availableNow=True).start()
    if not query.awaitTermination(WAIT_S):
        raise SystemExit("the query does not end")


if __name__ == "__main__":
    main()
