"""Counts the rows of every table by Delta's own reader: ``delta_counts.py TABLES JARS``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ternmq.spark


def main(tables: str, jars: str) -> None:
    """Print the counts as JSON, by table."""
    spark = ternmq.spark.session(
        "delta", master="local[2]", delta=True,
        settings={
            "spark.jars": jars, "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        },
    )  # fmt: skip
    try:
        names = sorted(one.name for one in Path(tables).iterdir() if (one / "_delta_log").exists())
        found = {
            name: spark.read.format("delta").load(f"{tables}/{name}").count() for name in names
        }
        print(json.dumps(found))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
