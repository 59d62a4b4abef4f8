"""Tables of a day, made: what a report is tried on, and looked at.

``python -m tests.unit.pipeline.report_day FOLDER`` makes them.
"""

from __future__ import annotations

import math
import random
import sys
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa

from ternmq.pipeline.audit.schema import AUDIT
from ternmq.pipeline.deadletters.deadletters import DEAD_LETTERS, fingerprint
from ternmq.pipeline.stats import stats
from ternmq.pipeline.stats.schema import COUNTS, STATS_DAY, STATS_HOUR, STATS_MINUTE
from ternmq.pipeline.stats.sketches import Logs
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table

MIDNIGHT = 1_795_219_200_000_000
DAY = "2026-11-21"
MINUTE = 60_000_000
GROUPS = {"orders": ("billing", "search"), "mail": ("sender",)}
REASONS = {
    "TimeoutError: no answer of 10.0.0.7:5432 after 30 s": (412, 371),
    "KeyError: 'customer_id'": (96, 0),
    "ValueError: amount -3.50 of order <b>17</b> is negative": (12, 31),
}


def minutes(chance, count, first=0):
    """Return statistics of so many minutes."""
    rows = []
    sketches: dict[str, list[tuple[int, list[int]]]] = {"end_to_end": [], "handling": []}
    for number in range(first, first + count):
        begin = MIDNIGHT + number * MINUTE
        wave = 1.3 + math.sin((number / 60 - 9) / 24 * 2 * math.pi)
        trouble = 4 if 840 <= number < 905 else 1
        for topic, groups in GROUPS.items():
            stored = int(chance.gauss(900, 60) * wave * (1 if topic == "orders" else 0.2))
            rows.append({"begin": begin, "topic": topic, "stored": stored,
                         "stored_bytes": stored * 310})  # fmt: skip
            for group in groups:
                done = int(stored * chance.uniform(0.95, 1.0) / trouble**0.5)
                retried = int(stored * 0.004 * trouble * trouble * chance.random())
                rows.append(
                    {"begin": begin, "topic": topic, "group": group, "app": f"{group}-app",
                     "delivered": done + retried, "redelivered": retried, "done": done,
                     "retried": retried, "dead": retried // 12}
                )  # fmt: skip
                middle = math.log(9000 * trouble) + wave / 4
                lots = {
                    "end_to_end": [int(chance.lognormvariate(middle, 0.7)) for _ in range(60)],
                    "handling": [int(chance.lognormvariate(8, 0.5)) for _ in range(60)],
                }
                for name, values in lots.items():
                    sketches[name].append((len(rows) - 1, values))
                behind = int(
                    max(0, 20 * wave + (trouble > 1) * 90 * min(number - 835, 905 - number))
                )
                rows.append({"begin": begin, "topic": topic, "group": group, "lag": behind})
    told = {
        name: pa.array([row.get(name, 0 if name in COUNTS else None) for row in rows], kind)
        for name, kind in (
            ("begin", pa.int64()), ("topic", pa.string()), ("group", pa.string()),
            ("app", pa.string()), *[(name, pa.int64()) for name in (*COUNTS, "lag")],
        )
    }  # fmt: skip
    for name, some in sketches.items():
        which = np.repeat([n for n, _ in some], [len(v) for _, v in some])
        taken = np.array([one for _, v in some for one in v], np.int64)
        told[name] = Logs.of(which, taken, len(rows)).column()
    return stats.merge(pa.table(told), STATS_MINUTE)


def make(folder: Path, count: int = 1440, *, first: int = 0, audit: bool = True) -> Folder:
    """Make the tables of a day."""
    tables = Folder(str(folder))
    rows = minutes(random.Random(1), count, first)
    Table.open(tables, STATS_MINUTE).append(rows)
    hours = stats.merge(rows, STATS_HOUR)
    Table.open(tables, STATS_HOUR).append(hours)
    Table.open(tables, STATS_DAY).append(stats.merge(hours, STATS_DAY))
    Table.open(tables, DEAD_LETTERS).append(pa.Table.from_pylist(dead(), DEAD_LETTERS.schema))
    if audit:
        Table.open(tables, AUDIT).append(pa.Table.from_pylist(audited(), AUDIT.schema))
    return tables


def dead():
    """Return rows of ``dead_letters``."""
    found = []
    for reason, (count, before) in REASONS.items():
        print_ = fingerprint(reason, "exhausted")
        found.append(
            {"topic": "orders", "group": "billing", "fingerprint": print_.id,
             "exception": print_.exception, "message": print_.message, "cause": "exhausted",
             "count": count, "first": MIDNIGHT + 840 * MINUTE, "last": MIDNIGHT + 905 * MINUTE,
             "day_before": before, "sample_ids": ["00000000000004d2:1f", "00000000000004d2:2a"],
             "sample_reason": reason, "day": date(2026, 11, 21), "schema_version": 2}
        )  # fmt: skip
    return found


def audited():
    """Return rows of ``audit``."""
    found = []
    for bucket in range(144):
        for topic in GROUPS:
            verdict = "lost" if (bucket, topic) == (86, "orders") else "ok"
            verdict = "unverified" if bucket in (12, 13) and topic == "mail" else verdict
            found.append(
                {"bucket": MIDNIGHT + 10 * bucket * MINUTE, "tier": "stored", "topic": topic,
                 "topic_number": 1,
                 "verdict": verdict, "final": True, "sent": 9000, "stored": 8998, "lost": 2 if
                 verdict == "lost" else 0, "doubled": 0, "late": 0, "day": date(2026, 11, 21),
                 "schema_version": 1}
            )  # fmt: skip
    return found


if __name__ == "__main__":
    make(Path(sys.argv[1]))
