"""The statements that make the tables are those of the golden files.

A golden file is never changed: a change of a table is a new version of its component, with an
upgrade and new files (``python -m tests.unit.reliable.database.test_ddl`` writes what is missing).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ternmq import reliable
from ternmq.reliable.database.dialect import Name
from ternmq.reliable.database.tables import TABLES, VERSIONS, columns
from ternmq.reliable.outbox.rows import COLUMNS

GOLDEN = Path(__file__).parents[3] / "golden" / "reliable"
DIALECTS = ("postgresql", "mysql", "sqlite")


def golden(component: str, dialect: str, version: int) -> Path:
    """Return the file of a version of a component's tables."""
    return GOLDEN / f"{component}_v{version}_{dialect}.sql"


def component_of(statement: str) -> str:
    """Return the component whose table a statement makes, or whose version it notes."""
    for one in VERSIONS:
        if f"ternmq_{one}" in statement or f"'{one}'" in statement:
            return one
    return "outbox"  # with the lease and the versions


def text(component: str, dialect: str) -> str:
    found = [one for one in reliable.ddl(dialect) if component_of(one) == component]
    return "".join([f"{statement};\n" for statement in found])


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("component", VERSIONS)
def test_the_statements_are_those_of_the_golden_file(component: str, dialect: str) -> None:
    file = golden(component, dialect, VERSIONS[component])
    assert file.exists(), "a new version: write its files"
    assert text(component, dialect) == file.read_text(encoding="utf-8"), "this is a new version"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("component", VERSIONS)
def test_there_is_a_golden_file_of_each_version(component: str, dialect: str) -> None:
    versions = range(1, VERSIONS[component] + 1)
    assert [one for one in versions if not golden(component, dialect, one).exists()] == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_columns_of_the_tables_are_read_from_the_statements(dialect: Name) -> None:
    found = columns(dialect)
    assert found == columns()
    assert set(found) == set(TABLES)
    assert found["schema"] == ("component", "version")
    assert set(found["outbox"]) == {*COLUMNS, "body"}
    assert found["lease"] == ("name", "epoch", "holder", "until_ms", "tick")


if __name__ == "__main__":
    for _component, _version in VERSIONS.items():
        for _dialect in DIALECTS:
            _file = golden(_component, _dialect, _version)
            if not _file.exists():
                _file.write_text(text(_component, _dialect), encoding="utf-8")
