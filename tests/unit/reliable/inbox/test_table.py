"""Statements on the table of the inbox, as they are written for each database."""

from __future__ import annotations

import pytest

from ternmq.reliable.database.dialect import MYSQL, POSTGRESQL, SQLITE
from ternmq.reliable.database.port import Result, Values
from ternmq.reliable.inbox.entry import Entry
from ternmq.reliable.inbox.table import InboxTable

ENTRY = Entry("orders/billing", b"\xff")


class Told:
    """Answers statements, and keeps them."""

    def __init__(self, *answers: Result | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, object]]] = []

    def run(self, statement: str, values: Values) -> Result:
        self.asked.append((statement, dict(values)))
        answer = self.answers.pop(0) if self.answers else Result((), 1)
        if isinstance(answer, Exception):
            raise answer
        return answer


def enter(table: InboxTable, told: Told, wait_s: float = 0.25) -> bool:
    return table.enter(told, ENTRY, 1000, wait_s)


def test_postgresql_tells_a_new_row_by_what_the_insert_returns() -> None:
    assert enter(InboxTable(POSTGRESQL), Told(Result([("0",)], 1)))
    assert not enter(InboxTable(POSTGRESQL), Told(Result([], 0)))


def test_sqlite_tells_a_new_row_by_the_count() -> None:
    assert enter(InboxTable(SQLITE), Told(Result((), 1)))
    assert not enter(InboxTable(SQLITE), Told(Result((), 0)))


def test_mysql_tells_a_known_row_by_the_error_and_puts_the_setting_back() -> None:
    table, done = InboxTable(MYSQL), Result((), 0)
    assert enter(table, told := Told(done, Result((), 2)))
    assert [statement.split()[0] for statement, _ in told.asked] == ["SET", "INSERT", "SET"]
    assert told.asked[0][1] == {"wait_s": 1}
    taken = Exception(1062, "Duplicate entry")
    assert not enter(table, told := Told(done, taken))
    assert told.asked[-1][0].endswith("= @ternmq_before")
    with pytest.raises(Exception, match="1205"):
        enter(table, told := Told(done, Exception(1205, "Lock wait timeout")))
    assert told.asked[-1][0].endswith("= @ternmq_before")


def test_the_first_error_is_raised_where_the_setting_cannot_be_put_back() -> None:
    lost = Exception(2013, "Lost connection")
    with pytest.raises(Exception, match="2013"):
        enter(InboxTable(MYSQL), Told(Result((), 0), lost, Exception("no connection")))


def test_mysql_is_given_digits() -> None:
    told = Told()
    InboxTable(MYSQL).keep(told, ENTRY, b"\0")
    [(statement, values)] = told.asked
    assert statement.count("UNHEX") == 3
    assert values == {"consumer": b"orders/billing".hex(), "id": "ff", "result": "00"}


def test_the_tables_may_be_in_another_schema() -> None:
    told = Told()
    InboxTable(MYSQL, "shop").clean(told, 5)
    assert "`shop`.ternmq_inbox" in told.asked[0][0]
