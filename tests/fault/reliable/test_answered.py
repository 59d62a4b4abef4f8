"""Rows that are answered and not deleted yet: how long, and what a failure in between repeats."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest
import sqlalchemy as sa

from ternmq.model.errors import Busy, Forbidden
from ternmq.reliable.database.port import Work
from ternmq.reliable.outbox import backlog
from ternmq.reliable.outbox.rows import Ref
from ternmq.reliable.outbox.steps import Step
from ternmq.reliable.outbox.table import Table
from tests.black_box.process import wait_until
from tests.fault.reliable.passes import Passes, once

KEY = [f"k{number}" for number in range(1, 8)]


class KilledError(BaseException):
    """The process dies."""


@pytest.fixture
def passes(tmp_path) -> Iterator[Passes]:
    with Passes(tmp_path) as made:
        yield made


def deletes(error: Callable[[], BaseException | None] = lambda: None):
    """Return a patch of the table's deletes: an error comes before each; it counts what it does."""
    real = Table.delete
    done: list[list[str]] = []

    def delete(table: Table, work: Work, refs: list[Ref]) -> int:
        found = error()
        if found is not None:
            raise found
        done.append([ref.id for ref in refs])
        return real(table, work, refs)

    return done, patch.object(Table, "delete", delete)


def away() -> sa.exc.OperationalError:
    return sa.exc.OperationalError("DELETE", {}, sqlite3.OperationalError("disk I/O error"))


def test_rows_of_a_key_are_deleted_together(passes):
    """Each leaves after the answer to the one before, which is still in the table then."""
    passes.write(*KEY, key="k")
    passes.write("other", key="other")
    seen = []
    passes.broker.answers = lambda topic, message: seen.append(passes.left())
    done, patched = deletes()
    one = passes.compensator()
    assert one.lead()
    with patched:
        one.scan()
    assert passes.broker.asked == [["k1", "other"], *[[id_] for id_ in KEY[1:]]]
    assert seen == [[*KEY, "other"]] * 8
    assert done == [["k1", "other", *KEY[1:]]]
    assert passes.left() == []
    assert passes.gone == ["k1", "other", *KEY[1:]]


@pytest.mark.parametrize("limit", ["age", "number"])
def test_few_rows_are_answered_and_not_deleted(passes, limit, monkeypatch):
    passes.write(*KEY, key="k")
    open_ = []

    def answers(topic, message):
        open_.append(len(set(passes.broker.stored) & set(passes.left())))
        if limit == "age":
            passes.pass_time(backlog.NOTE_S * 0.4)

    passes.broker.answers = answers
    if limit == "number":
        monkeypatch.setattr(backlog, "NOTE_ROWS", 4)
    one = passes.compensator()
    assert one.lead()
    one.scan()
    assert max(open_) == 3
    assert passes.left() == []


def test_rows_are_deleted_while_a_later_one_is_not_answered(passes):
    """The broker answers one key and is slow with another: nothing waits for the slow one."""
    passes.write("k1", "k2", key="k")

    def answers(topic, message):
        if message.id == "k2":
            passes.pass_time(1)
            wait_until(lambda: passes.left() == ["k2"], "the row before is deleted")

    passes.broker.answers = answers
    one = passes.compensator()
    assert one.lead()
    one.scan()
    assert passes.left() == []


@pytest.mark.parametrize("keep_sent", [None, 60.0])
@pytest.mark.parametrize("is_known", [True, False], ids=["in the window", "beyond the window"])
def test_a_process_that_dies_in_between_repeats_its_rows_in_order(passes, is_known, keep_sent):
    """Rows behind them are sent after the last of the copies."""
    passes.write(*KEY, key="k")
    kill = KilledError()
    passes.broker.answers = lambda topic, message: kill if message.id == "k5" else None
    one, two = (passes.compensator(name, keep_sent=keep_sent) for name in ("one", "two"))
    assert one.lead()
    with pytest.raises(KilledError):
        one.scan()
    assert passes.left() == KEY
    passes.broker.answers = lambda topic, message: None
    if not is_known:
        passes.broker.forget()
    passes.pass_time(60)
    assert two.lead()
    two.scan()
    assert [asked for [asked] in passes.broker.asked] == [*KEY[:5], *KEY]
    assert passes.broker.stored == (KEY if is_known else [*KEY[:4], *KEY])
    assert passes.stats.duplicates == (4 if is_known else 0)
    assert passes.left() == ([] if keep_sent is None else KEY)
    assert {state for state, _ in passes.states().values()} == (set() if keep_sent is None else {3})


def test_another_one_that_sends_the_same_rows_meanwhile(passes):
    """The first one is frozen, and goes on: all are recognised, and none is left."""
    passes.write(*KEY, key="k")
    one, two = passes.compensator("one"), passes.compensator("two")
    assert one.lead()
    asked: list[list[str]] = []

    def observe(step, ids):
        if step is Step.DELETE_RESENT and not asked:
            asked.append(list(ids))
            passes.pass_time(60)
            assert two.lead()
            two.scan()

    one._sending.steps.observe(observe)
    one.scan()
    assert asked == [KEY]
    assert passes.broker.stored == KEY
    assert [asked for [asked] in passes.broker.asked] == KEY * 2
    assert passes.stats.duplicates == len(KEY)
    assert passes.left() == []


def test_a_database_that_is_away_repeats_nothing(passes):
    """What is answered stays in memory, and is deleted before the next page is read."""
    passes.write(*KEY, key="k")
    errors = [away(), away(), away()]
    done, patched = deletes(lambda: errors.pop() if errors else None)
    one = passes.compensator()
    assert one.lead()
    with patched:
        for _ in range(3):
            with pytest.raises(sa.exc.OperationalError):
                one.scan()
            passes.pass_time(3)
            assert one.lead()
        assert passes.left() == KEY
        passes.write("k8", key="k")
        one.scan()
    assert done == [KEY, ["k8"]]
    assert passes.broker.stored == [*KEY, "k8"]
    assert passes.stats.duplicates == 0
    assert passes.left() == []


def test_a_number_that_is_given_again_meanwhile_is_another_row(passes):
    [first] = passes.write("k1", key="k")
    errors = [away()]
    _, patched = deletes(lambda: errors.pop() if errors else None)
    one = passes.compensator()
    assert one.lead()
    with patched, pytest.raises(sa.exc.OperationalError):
        one.scan()
    with passes.database.writing() as work:
        passes.table.delete(work, [first])
    passes.write("new", key="k", seq=first.seq)
    one.scan()
    assert passes.broker.stored == ["k1", "new"]
    assert passes.left() == []


def test_the_last_rows_are_deleted_when_the_lease_is_given_back(passes):
    passes.write("k1", key="k")
    errors = [away()]
    _, patched = deletes(lambda: errors.pop() if errors else None)
    one = passes.compensator()
    assert one.lead()
    with patched, pytest.raises(sa.exc.OperationalError):
        one.scan()
    one.give_back()
    assert passes.left() == []


def test_a_refusal_of_one_that_leads_no_more_hides_no_row(passes):
    """The one that leads does not know of it: it would send the row behind."""
    passes.write("k1", "k2", key="k")
    one, two = passes.compensator("one"), passes.compensator("two")
    assert one.lead()

    def answers(topic, message):
        passes.broker.answers = lambda topic, message: None
        passes.pass_time(60)
        assert two.lead()
        return Forbidden("no right")

    passes.broker.answers = answers
    one.scan()
    assert passes.states() == {"k1": (0, 0), "k2": (0, 0)}
    two.scan()
    assert passes.broker.stored == ["k1", "k2"]
    assert passes.left() == []


def test_one_that_leads_no_more_holds_no_rows(passes):
    """Its topic waits, and it is frozen after it read a page; the one that leads knows nothing."""
    passes.write("k1", "k2", key="k")
    one, two = passes.compensator("one"), passes.compensator("two")
    passes.broker.answers = lambda topic, message: Busy("later")
    for _ in range(6):  # until the topic waits for long
        passes.pass_time(20)
        assert one.lead()
        one.scan()
    passes.broker.answers = lambda topic, message: None
    real, two_leads = Table.page, list[bool]()

    def page(table, work, **options):
        found = real(table, work, **options)
        passes.pass_time(60)
        two_leads.append(two.lead())
        return found

    with patch.object(Table, "page", page):
        one.scan()
    assert two_leads == [True]
    assert {state for state, _ in passes.states().values()} == {0}
    passes.write("k3", key="k")
    two.scan()
    two.scan()  # those behind a row that was refused
    assert passes.broker.stored == ["k1", "k2", "k3"]


def test_one_that_leads_no_more_reads_no_page(passes):
    """By its clock it leads: a row is hidden that another one has noted as refused."""
    passes.write("k1", "k2", key="k")
    one, two = passes.compensator("one"), passes.compensator("two")
    assert one.lead()
    passes.ms += 3_600_000  # the database's clock jumps
    assert two.lead()
    passes.broker.answers = once(Forbidden("no right"), "k1")
    two.scan()
    assert one._lease.held
    one.scan()
    assert passes.broker.stored == []
    passes.pass_time(2)
    assert two.lead()
    two.scan()
    two.scan()
    assert passes.broker.stored == ["k1", "k2"]


def test_rows_behind_a_refusal_that_could_not_be_written_go_on(passes):
    """The row looks as if it was never refused; those behind it are held all the same."""
    passes.write("k1", "k2", key="k")
    one = passes.compensator()
    assert one.lead()
    passes.broker.answers = lambda topic, message: Forbidden("no right")

    def refused(*args: object, **options: object) -> bool:
        raise away()

    with patch.object(Table, "refused", refused), pytest.raises(sa.exc.OperationalError):
        one.scan()
    passes.broker.answers = lambda topic, message: None
    one.scan()
    one.scan()
    assert passes.broker.stored == ["k1", "k2"]
    assert passes.left() == []
