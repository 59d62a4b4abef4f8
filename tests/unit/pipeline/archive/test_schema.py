from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import re
from pathlib import Path

from ternmq.pipeline.archive.schema import ARCHIVE, ERASED, GAPS
from ternmq.pipeline.audit.schema import AUDIT, FINDINGS, RUNS
from ternmq.pipeline.deadletters.deadletters import DEAD_LETTERS
from ternmq.pipeline.stats.schema import STATS_DAY, STATS_HOUR, STATS_MINUTE
from ternmq.pipeline.trace.schema import KNOWN, TRACE

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "tables.md"
TABLES = [
    ARCHIVE, GAPS, ERASED, TRACE, KNOWN, STATS_MINUTE, STATS_HOUR, STATS_DAY, DEAD_LETTERS,
    AUDIT, FINDINGS, RUNS,
]  # fmt: skip


@pytest.mark.parametrize("spec", TABLES, ids=lambda one: one.name)
def test_the_page_names_every_column_in_order(spec):
    text = PAGE.read_text(encoding="utf-8")
    heading = f"### `{spec.name}`, version {spec.version}\n"
    assert heading in text
    table = text.split(heading)[1].split("\n#")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert re.findall(r"`(\w+)`", " ".join(rows)) == spec.schema.names


@pytest.mark.parametrize("spec", TABLES, ids=lambda one: one.name)
def test_bounds_are_of_nothing_that_users_wrote(spec):
    assert not {"key", "ordering_key", "tag", "headers", "body", "application_id"} & set(
        spec.bounds
    )
    assert set(spec.partition_by) | set(spec.bounds) <= set(spec.schema.names)
    assert spec.schema.names[-1] == "schema_version"
