"""The table of the outbox, on SQLite; tests/integration/reliable has the other databases."""

from __future__ import annotations

import pytest

from ternmq.reliable.database.dialect import MYSQL, POSTGRESQL, SQLITE
from ternmq.reliable.database.tables import State
from ternmq.reliable.libraries.alchemy import AlchemyDatabase
from ternmq.reliable.outbox.rows import Ref, Row
from ternmq.reliable.outbox.table import INLINE_BYTES, PAGE_ROWS, Table

TABLE = Table(SQLITE)


def values(id_: str, **changes: object) -> dict[str, object]:
    return {
        "by_writer": 0, "id": id_.encode(), "topic": "orders", "queue": None, "message_key": "",
        "ordering_key": "", "tag": "", "content_type": "", "headers": None, "priority": 0,
        "due_ms": None, "expires_ms": None, "items": 1, "body": b"x", **changes,
    }  # fmt: skip


def insert(database: AlchemyDatabase, *rows: dict[str, object]) -> list[Ref]:
    with database.writing(durable=True) as work:
        result = work.run(*TABLE.insertion(rows))
    numbers = TABLE.numbers(result, len(rows))
    return [Ref(seq, str(row["id"], "utf-8")) for seq, row in zip(numbers, rows, strict=True)]  # type: ignore[call-overload]


def page(database: AlchemyDatabase, resend_after_ms: int = 10_000) -> list[Row]:
    with database.reading() as work:
        return TABLE.page(work, resend_after_ms=resend_after_ms)


def states(database: AlchemyDatabase) -> dict[str, int]:
    with database.reading() as work:
        found = work.run("SELECT id, state FROM ternmq_outbox ORDER BY seq", {}).rows
    return {bytes(id_).decode(): state for id_, state in found}


def test_rows_come_back_as_they_were_written(database) -> None:
    [ref] = insert(
        database,
        values("ä", topic="t", queue=3, message_key="k", ordering_key="o", tag="g",
               content_type="text/plain", priority=2, due_ms=5, expires_ms=9, items=20,
               body=b"\0\xff"),
    )  # fmt: skip
    [row] = page(database)
    assert row.ref == ref
    assert (row.id, row.topic, row.queue, row.key, row.ordering_key) == ("ä", "t", 3, "k", "o")
    assert (row.tag, row.content_type, row.priority, row.due_ms) == ("g", "text/plain", 2, 5)
    assert (row.expires_ms, row.items, row.body, row.tries) == (9, 20, b"\0\xff", 0)
    assert row.headers == {}


def test_many_rows_are_numbered_in_order(database) -> None:
    refs = insert(database, *[values(f"{number}") for number in range(PAGE_ROWS)])
    assert [row.ref for row in page(database)] == refs
    assert [ref.seq for ref in refs] == list(range(1, PAGE_ROWS + 1))


def test_a_page_leaves_rows_to_their_writer_for_a_while(database) -> None:
    insert(database, values("mine", by_writer=1), values("anybody's"))
    assert [row.id for row in page(database)] == ["anybody's"]
    with database.writing() as work:
        work.run("UPDATE ternmq_outbox SET written_ms = written_ms - 20000", {})
    assert [row.id for row in page(database)] == ["mine", "anybody's"]


def test_a_clock_that_was_set_back_strands_no_row(database) -> None:
    insert(database, values("mine", by_writer=1), values("refused"))
    with database.writing() as work:
        work.run("UPDATE ternmq_outbox SET written_ms = written_ms + 3600000, "
                 "next_ms = written_ms + 7200000", {})  # fmt: skip
    assert [row.id for row in page(database)] == ["mine", "refused"]


def test_a_row_that_was_refused_waits(database) -> None:
    insert(database, values("a"))
    [row] = page(database)
    with database.writing() as work:
        TABLE.refused(work, row, tries=1, wait_ms=60_000, error="Forbidden: no", failed=False)
    assert page(database) == []
    with database.writing() as work:
        work.run("UPDATE ternmq_outbox SET next_ms = next_ms - 60000", {})
    [row] = page(database)
    assert (row.tries, row.error, row.by_writer) == (1, "Forbidden: no", False)


def test_large_bodies_are_read_alone(database) -> None:
    insert(database, values("a", body=bytes(INLINE_BYTES + 1)), values("b"))
    large, small = page(database)
    assert [large.body, small.body] == [None, b"x"]
    [again, _] = page(database)
    with database.reading() as work:
        assert TABLE.read_body(work, large)
        assert large.body == bytes(INLINE_BYTES + 1)
        TABLE.delete(work, [large.ref])
        assert not TABLE.read_body(work, again)


def test_a_delete_names_number_and_id(database) -> None:
    """SQLite gives a number again after a rollback."""
    [ref] = insert(database, values("new"))
    with database.writing() as work:
        assert TABLE.delete(work, [Ref(ref.seq, "old")]) == 0
        assert TABLE.delete(work, [ref]) == 1


def test_own_rows_are_those_with_their_ids(database) -> None:
    [one, two] = insert(database, values("1", by_writer=1), values("2", by_writer=1))
    with database.reading() as work:
        assert [row.ref for row in TABLE.own(work, [one, Ref(two.seq, "other")])] == [one]
        assert TABLE.unsent(work, [one, two, Ref(99, "gone")]) == [one, two]


def test_keys_are_blocked_by_their_first_row_that_was_refused(database) -> None:
    insert(
        database, values("1", ordering_key="a"), values("2", ordering_key="a"),
        values("3", ordering_key="b"), values("4"), values("5", ordering_key="c"),
    )  # fmt: skip
    rows = {row.id: row for row in page(database)}
    with database.writing() as work:
        TABLE.refused(work, rows["1"], tries=1, wait_ms=0, error="", failed=False)
        TABLE.refused(work, rows["2"], tries=1, wait_ms=0, error="", failed=False)
        TABLE.refused(work, rows["3"], tries=5, wait_ms=0, error="", failed=True)
        TABLE.refused(work, rows["4"], tries=5, wait_ms=0, error="", failed=True)
        seq = {name: row.seq for name, row in rows.items()}
        assert sorted(TABLE.blocked_keys(work)) == [
            ("orders", "a", seq["1"]), ("orders", "b", seq["3"])
        ]  # fmt: skip
        assert TABLE.blocking(work, [seq["1"], seq["3"], seq["5"]]) == [seq["1"], seq["3"]]
    assert states(database) == {"1": 0, "2": 0, "3": State.FAILED, "4": State.FAILED, "5": 0}


def test_held_rows_are_released_by_key_topic_or_all(database) -> None:
    insert(
        database, values("1", ordering_key="a"), values("2", ordering_key="b"),
        values("3", topic="payments", ordering_key="a"), values("4"),
    )  # fmt: skip
    rows = page(database)
    with database.writing() as work:
        assert TABLE.hold(work, [row.ref for row in rows]) == 4
        assert TABLE.release(work, "orders", "a") == 1
        assert TABLE.release(work, "payments") == 1
        assert TABLE.release(work) == 2
        assert TABLE.release(work) == 0


def test_rows_that_were_sent_are_kept_and_cleaned(database) -> None:
    refs = insert(database, values("1"), values("2"))
    with database.writing() as work:
        assert TABLE.keep(work, refs[:1], resent=False) == 1
        assert TABLE.keep(work, refs, resent=True) == 1
        assert TABLE.clean(work, keep_ms=60_000) == 0
        assert [row[0] for row in work.run("SELECT tries FROM ternmq_outbox", {}).rows] == [0, 1]
        work.run("UPDATE ternmq_outbox SET next_ms = next_ms - 70000", {})
        assert TABLE.clean(work, keep_ms=60_000, limit=1) == 1
        assert TABLE.clean(work, keep_ms=60_000) == 1
    assert states(database) == {}


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [(SQLITE, [3, 4, 5]), (MYSQL, [5, 6, 7]), (POSTGRESQL, [11, 12, 13])],
    ids=lambda one: getattr(one, "name", ""),
)
def test_numbers_of_new_rows(dialect, expected) -> None:
    from ternmq.reliable.database.port import Result

    result = Result([(11,), (12,), (13,)] if dialect.returning else (), 3, 5)
    assert Table(dialect).numbers(result, 3) == expected


def test_a_schema_is_quoted_and_checked() -> None:
    assert "`mq-1`.ternmq_outbox" in Table(MYSQL, "mq-1").fill("SELECT 1 FROM {outbox}")
    assert '"mq".ternmq_outbox' in Table(POSTGRESQL, "mq").fill("SELECT 1 FROM {outbox}")
    with pytest.raises(Exception, match="letters"):
        Table(POSTGRESQL, 'a"; DROP').fill("{outbox}")
