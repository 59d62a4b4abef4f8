"""A broker, servers and a nursery for each module; which tests belong to `make test`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.black_box.process import BrokerProcess
from tests.fault.reliable.crew import Nursery, nursery
from tests.fault.reliable.tools import LONG
from tests.killable_databases import Servers, quick_folder

SHORT: Final = (
    "[sqlite-application-insert]",
    "[sqlite-application-committed]",
    "[sqlite-application-response]",
    "[sqlite-compensator-resend]",
    "[sqlite-compensator-delete_resent]",
    "[sqlite-broker-send]",
    "[postgresql-application-commit]",
    "[postgresql-database-commit]",
    "[postgresql-database-delete]",
    "[postgresql-database_of_compensator-delete_resent]",
    "[mariadb-application-delete]",
    "[mariadb-database-committed]",
    "[mariadb-broker_of_compensator-response]",
    "[mariadb-compensator-scan]",
    "[mariadb-database_of_compensator-resend]",
    "[lost-sqlite]",
    "[frozen-mariadb]",
    "[slow-postgresql]",
    "[cut-sqlite]",
    "test_a_lock_on_the_table_is_held_for_long[mariadb]",
    "test_a_transaction_stays_open_while_many_rows_pass[mariadb]",
    "test_the_database_is_full",
    "test_answers_of_the_database_are_lost[postgresql]",
    "test_the_line_of_the_leader_is_half_open[mariadb]",
    "test_the_clock_of_the_database_jumps_by_an_hour[sqlite]",
)
"""Ends of the ids of tests of which `make test` runs these; `make outbox-faults` runs all."""
FILES: Final = ("test_steps.py", "test_faults.py", "test_lines.py", "test_clocks.py")
"""Whose tests are chosen from so."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the others out, unless the long forms are run or somebody names the files."""
    if LONG or _named(config.args):
        return
    here = [one for one in items if any(f"fault/reliable/{name}" in one.nodeid for name in FILES)]
    out = [one for one in here if not one.nodeid.endswith(SHORT)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [one for one in items if one not in out]


def _named(words: Sequence[str]) -> bool:
    return any("tests/fault/reliable/" in word for word in words)


@pytest.fixture(scope="module")
def module_folder() -> Iterator[Path]:
    """A folder of the module."""
    path = Path(tempfile.mkdtemp(prefix="ternmq-outbox-", dir=quick_folder()))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def servers(module_folder: Path) -> Iterator[Servers]:
    """Database servers that may be killed."""
    with Servers(module_folder / "sqlite") as made:
        yield made


@pytest.fixture(scope="module")
def broker(module_folder: Path) -> Iterator[BrokerProcess]:
    """A broker that may be killed."""
    with BrokerProcess("dev", module_folder / "broker", segment="4MiB") as made:
        yield made


@pytest.fixture(scope="module")
def forks() -> Iterator[Nursery]:
    """What forks members."""
    with nursery() as made:
        yield made
