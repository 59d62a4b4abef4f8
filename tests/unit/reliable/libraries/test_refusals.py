"""What errors of drivers mean, also those that another library has wrapped."""

from __future__ import annotations

import sqlite3

import pytest

from ternmq.reliable.libraries.refusals import asks_again, is_away, waited_in_vain


def error(library: str, name: str, *args: object, **attributes: object) -> Exception:
    """Return an error as a driver raises it, wrapped as Django does."""
    kind = type(name, (Exception,), {"__module__": library})
    made: Exception = kind(*args)
    for one, value in attributes.items():
        setattr(made, one, value)
    outer = Exception(*args)
    outer.__cause__ = made
    return outer


@pytest.mark.parametrize(
    ("found", "away"),
    [
        (error("psycopg.errors", "AdminShutdown", sqlstate="57P01"), True),
        (error("psycopg", "OperationalError", "server closed the connection", sqlstate=None), True),
        (error("psycopg2", "OperationalError", "no connection", pgcode=None), True),
        (error("psycopg_pool", "PoolTimeout"), True),
        (error("psycopg.errors", "QueryCanceled", sqlstate="57014"), False),
        (error("psycopg", "ProgrammingError", "cannot adapt type", sqlstate=None), False),
        (error("psycopg.errors", "UndefinedTable", sqlstate="42P01"), False),
        (error("pymysql.err", "OperationalError", 2013, "Lost connection"), True),
        (error("MySQLdb", "OperationalError", 1053, "shutdown"), True),
        (error("pymysql.err", "OperationalError", 1205, "Lock wait timeout"), False),
        (sqlite3.OperationalError("no such table: x"), False),
        (OSError(2013, "not of a driver"), False),
    ],
)
def test_an_error_of_a_connection(found: Exception, away: bool) -> None:
    assert is_away(found) is away


def test_a_file_that_cannot_be_opened(tmp_path) -> None:
    with pytest.raises(sqlite3.OperationalError) as found:
        sqlite3.connect(tmp_path / "no" / "folder.db")
    assert is_away(found.value)


def test_psycopg2_names_its_state_otherwise() -> None:
    assert asks_again(error("psycopg2.errors", "DeadlockDetected", pgcode="40P01"))
    assert waited_in_vain(error("psycopg2.errors", "LockNotAvailable", pgcode="55P03"))
