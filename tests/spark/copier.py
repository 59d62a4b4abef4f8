"""A program that copies a topic, batch by batch: into files, then into another topic."""

from __future__ import annotations

import argparse

import ternmq.spark
from tests.spark.queries import finish
from tests.spark.sessions import SETTINGS

WAIT_S = 450


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", required=True)
    arguments.add_argument("--checkpoint", required=True)
    arguments.add_argument("--path")
    arguments.add_argument("--topic")
    arguments.add_argument("--due", help="UTC; of three rows, two are due an hour or two later")
    given = arguments.parse_args()
    spark = ternmq.spark.session(
        "copier",
        master="local[2]",
        settings=SETTINGS,
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
    writers = {}
    if given.path:
        writers["files"] = table.writeStream.format("parquet").option("path", given.path)
    if given.topic:
        number = "cast(cast(value as string) as int) % 3"
        due = f"timestampadd(HOUR, {number}, timestamp'{given.due}Z')"
        times = [f"if({number} = 0, null, {due}) as delay_until"] if given.due else []
        writers["topic"] = (
            table.selectExpr("key", "value", *times)
            .writeStream.format("ternmq")
            .option("bootstrap.servers", at)
            .option("topic", given.topic)
        )
    for name, writer in writers.items():
        checkpoint = f"{given.checkpoint}/{name}"
        finish(
            writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start,
            wait_s=WAIT_S,
        )


if __name__ == "__main__":
    main()
