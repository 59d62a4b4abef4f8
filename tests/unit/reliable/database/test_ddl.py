"""The statements that make the tables are those of the golden files.

A golden file is never changed: a change of a table is a new version, with an upgrade and new files
(``python -m tests.unit.reliable.database.test_ddl`` writes what is missing).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ternmq import reliable
from ternmq.reliable.database.tables import VERSIONS

GOLDEN = Path(__file__).parents[3] / "golden" / "reliable"
DIALECTS = ("postgresql", "mysql", "sqlite")


def golden(dialect: str, version: int) -> Path:
    """Return the file of a version of the outbox's tables."""
    return GOLDEN / f"outbox_v{version}_{dialect}.sql"


def text(dialect: str) -> str:
    return "".join([f"{statement};\n" for statement in reliable.ddl(dialect)])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_statements_are_those_of_the_golden_file(dialect: str) -> None:
    file = golden(dialect, VERSIONS["outbox"])
    assert file.exists(), "a new version: write its files"
    assert text(dialect) == file.read_text(encoding="utf-8"), "a change needs a new version"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_there_is_a_golden_file_of_each_version(dialect: str) -> None:
    versions = range(1, VERSIONS["outbox"] + 1)
    assert [one for one in versions if not golden(dialect, one).exists()] == []


if __name__ == "__main__":
    for _dialect in DIALECTS:
        _file = golden(_dialect, VERSIONS["outbox"])
        if not _file.exists():
            _file.write_text(text(_dialect), encoding="utf-8")
