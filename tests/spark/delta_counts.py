"""Counts the rows of every table by Delta's own reader: ``python -m tests.spark.delta_counts``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.spark.sessions import delta_session


def main(tables: str, jars: str) -> None:
    """Print the counts of the folder ``tables`` as JSON, by table; ``jars``: see ``delta_jars``."""
    with delta_session(jars) as spark:
        names = sorted(one.name for one in Path(tables).iterdir() if (one / "_delta_log").exists())
        found = {
            name: spark.read.format("delta").load(f"{tables}/{name}").count() for name in names
        }
        print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
