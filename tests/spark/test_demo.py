"""The demo makes tables in the end; what its judge of tables finds in them when they are bent."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytest.importorskip("deltalake", reason="needs pyspark and a Java: pip install ternmq[spark]")
from ternmq.demo.check import judge
from ternmq.demo.judge.verdict import Fault, Verdict
from ternmq.demo.plan import AGAIN, FLIGHTS

DEADLINE = 400.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * DEADLINE)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the demo on one day; return the folder that it leaves, the page beside it."""
    folder = tmp_path_factory.mktemp("demo")
    run = subprocess.run(
        [sys.executable, "-m", "ternmq", "demo", "--days", "1", "--speed", "0", "--tables",
         "--data", str(folder / "run"), "--page", str(folder / "page.html"), "--json"],
        capture_output=True, timeout=DEADLINE, check=False, cwd=folder,
        env=os.environ | {"TMPDIR": str(folder)},
    )  # fmt: skip
    (folder / "said").write_bytes(run.stderr)
    (folder / "verdict.json").write_bytes(run.stdout)
    assert run.returncode == 0, run.stderr.decode()
    return folder


@pytest.mark.row("R6", "R7", "R8", "R9", "R10", "R16")
def test_everything_is_in_the_tables(made: Path) -> None:
    verdict = msgspec.json.decode((made / "verdict.json").read_bytes(), type=Verdict)
    assert verdict.ok
    assert verdict.kills == ["board-1", "cashier-1", "broker"]
    found = verdict.tables
    assert found is not None
    assert found.archived == found.wanted == found.counted == verdict.messages > 1000
    assert found.again == found.again_wanted > 50
    assert found.traced == sum(group.owed for group in verdict.groups)
    assert found.failures >= sum(group.retried for group in verdict.groups) > 0
    # Flights: stored, archived, 4 groups; reminders: the same, 1, due; two topics of bookings.
    assert found.audited == 16
    said = (made / "said").read_text()
    assert re.search(r"UA on 2013-01-01, .*: \d+ messages; second run: 0\n", said)
    assert re.search(r"tables made by Spark 4\.\d", said)
    assert "audit: " in said
    assert ", all ok;" in said
    page = (made / "page.html").read_text()
    assert "<svg" in page
    assert not re.search(r"""(?:src|href)=["']?https?:""", page), "it loads nothing"


Change = Callable[[pa.Table], pa.Table]


def bend(folder: Path, name: str, change: Change, topic: str | None) -> None:
    """Change the rows, of a topic or all, of the first file of a table that has any."""
    from ternmq.pipeline.running.jobs import all_tables
    from ternmq.pipeline.tables.folder import Folder
    from ternmq.pipeline.tables.table import Table

    (spec,) = [one for one in all_tables() if one.name == name]
    table = Table.open(Folder(str(folder / "tables")), spec, create=False)
    for file in table.files():
        rows = table.read_files([file])
        mine = [topic in {None, one} for one in rows["topic"].to_pylist()]
        if any(mine):
            others = table.stage(rows.filter([not one for one in mine]))
            table.commit([*table.stage(change(rows.filter(mine))), *others], [file])
            return
    raise AssertionError(f"{name} has no row of {topic}")


def one_less(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def one_twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def the_last_first(rows: pa.Table) -> pa.Table:
    """Offsets the other way round."""
    return rows.set_column(
        rows.schema.get_field_index("offset"), "offset", rows["offset"].take(_reversed(rows))
    )


def _reversed(rows: pa.Table) -> pa.Array:
    return pa.array(range(len(rows) - 1, -1, -1))


def another_body(rows: pa.Table) -> pa.Table:
    bodies = [
        body.replace(b'"from":"', b'"from":"?') if at == 0 else body
        for at, body in enumerate(rows["body"].to_pylist())
    ]
    return rows.set_column(
        rows.schema.get_field_index("body"), "body", pa.array(bodies, pa.binary())
    )


def some(name: str, value: Any) -> Change:
    """Return a change: in the first row a column has another value."""

    def change(rows: pa.Table) -> pa.Table:
        values = rows[name].to_pylist()
        column = pa.array([value, *values[1:]], rows.schema.field(name).type)
        return rows.set_column(rows.schema.get_field_index(name), name, column)

    return change


def more(name: str) -> Change:
    def change(rows: pa.Table) -> pa.Table:
        return rows.set_column(rows.schema.get_field_index(name), name, pc.add(rows[name], 1))

    return change


@pytest.mark.parametrize(
    ("table", "topic", "change", "told"),
    [
        ("archive", FLIGHTS, one_less, "archive: .* is not there"),
        ("archive", FLIGHTS, one_twice, "archive: .* is there twice"),
        ("archive", FLIGHTS, another_body, "archive: .* its body is not the one that was sent"),
        ("archive", AGAIN, one_less, "flights-again: .* messages were sent again, not the"),
        ("archive", AGAIN, the_last_first, "flights-again: .* in their order"),
        ("trace", None, one_less, "trace: .* done and .* dead, not"),
        ("trace", None, some("state", "dead"), "trace: .* done and .* dead, not"),
        ("audit", None, some("verdict", "lost"), "audit: .*: lost"),
        ("stats_minute", None, more("stored"), "stats_minute: .* stored, and .* archived"),
    ],
)
def test_a_table_that_is_wrong_is_found(made, tmp_path, table, topic, change, told):
    folder = tmp_path / "run"
    shutil.copytree(made / "run", folder)
    assert judge(folder).finding_count == 0
    bend(folder, table, change, topic)
    verdict = judge(folder)
    assert verdict.finding_count > 0
    assert verdict.faults == [Fault.TABLE]
    lines = [f"{one.group}: {one.event} {one.detail}" for one in verdict.findings]
    assert any(re.match(told, line) for line in lines), lines
    assert json.loads(msgspec.json.encode(verdict))["tables"]["faults"] == verdict.finding_count
