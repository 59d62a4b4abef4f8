from __future__ import annotations

import itertools
import random
from collections import defaultdict
from datetime import UTC, date, datetime

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import pyarrow as pa

from ternmq.pipeline.deadletters.deadletters import (
    COLUMNS,
    deaths,
    fingerprint,
    of_day,
    places,
    rows_since,
)
from ternmq.pipeline.trace.schema import TRACE
from tests.unit.pipeline.test_trace import fold
from tests.unit.pipeline.trace_streams import NOON

DAY = 86_400_000_000


@pytest.mark.row("R13")
@pytest.mark.parametrize(
    ("reasons", "exception", "message"),
    [
        (["KeyError: 'user-7'", "KeyError: 'anna \\'b\\''"], "KeyError", "<text>"),
        (["TimeoutError", "TimeoutError: "], "TimeoutError", ""),
        (
            ["ValueError: order 17 of /srv/a/b.csv is -3.5", "ValueError: order 9 of ~/x is 2e10"],
            "ValueError",
            "order <number> of <path> is <number>",
        ),
        (
            ["db.errors.Gone: https://a.b/c?d=1 at 0x7f3a", "db.errors.Gone: http://x at 0X1"],
            "db.errors.Gone",
            "<address> at <number>",
        ),
        (
            ["no such id 7b1c2d3e-0000-4000-8000-00000000000a", "no such id 00000000000012ab:1f"],
            "",
            "no such id <id>",
        ),
        (["hash deadbeef01  is\nbad", "hash 0123456789abcdef is bad"], "", "hash <id> is bad"),
        (["mail to a.b+c@d.example failed"], "", "mail to <address> failed"),
        (["user17 at 10:45:00,123"], "", "user<number> at <number>"),
        (["the face of a decade"], "", "the face of a decade"),
    ],
)
def test_what_differs_from_one_time_to_the_next_is_left_out(reasons, exception, message):
    found = {fingerprint(one, "rejected") for one in reasons}
    assert {(one.exception, one.message) for one in found} == {(exception, message)}
    assert len(found) == 1


@pytest.mark.row("R13")
def test_other_causes_are_others():
    reasons = ["KeyError: 'a'", "IndexError: 'a'", "KeyError: 3", "ValueError: a b", None, ""]
    found = [fingerprint(one, "time") for one in reasons]
    assert len({one.id for one in found}) == 5
    assert found[4] == found[5]
    assert found[4].message == "(time)"
    assert fingerprint(None, "session").id != found[4].id
    # What clients have where a table has nothing.
    assert fingerprint("the consumer was gone", "session") == fingerprint(None, "session")


def test_a_message_is_short():
    assert len(fingerprint("ä" * 5000, None).message) == 300


def life():
    """Ten messages that die on one day and the next, of two causes; some come again."""
    told = {"part": 0, "topic": "orders", "topic_number": 1, "queue": 0, "app": "a", "client": "c"}
    group = told | {"group": "g", "group_number": 5}
    events = [
        told | {"position": 8, "time": NOON, "kind": "config", "name": "subscribed",
                "detail": '{"group": 5, "group_name": "g", "topic": 1, "cursors": [0]}'},
        told | {"position": 16, "time": NOON, "kind": "stored", "start": 0, "stop": 10, "rows": 10,
                "bytes": 5, "producer_id": 1, "sequence": 1, "born_time": NOON},
    ]  # fmt: skip

    def dies(position, time, start, stop, reason):
        run = {"start": start, "stop": stop, "rows": stop - start, "attempt": 1, "deliveries": 1}
        events.append(group | run | {"position": position, "time": time, "kind": "pulled"})
        events.append(
            group | run | {"position": position + 1, "time": time + 5, "kind": "settled",
                           "outcome": "dead", "cause": "rejected", "reason": reason, "round": 0}
        )  # fmt: skip

    dies(24, NOON, 0, 2, "KeyError: 'a'")
    dies(32, NOON + 60, 2, 3, "KeyError: 'b'")
    dies(40, NOON + 70, 3, 4, "disk full")
    dies(48, NOON + DAY, 4, 8, "KeyError: 'c'")
    events.append(
        group | {"position": 56, "time": NOON + DAY, "kind": "replayed", "start": 0, "stop": 1,
                 "rows": 1, "attempt": 1, "round": 1}
    )  # fmt: skip
    return events


@pytest.mark.row("R13")
def test_days_are_counted_by_cause_and_compared(tables):
    one = fold(tables, life(), cuts=[40])
    counted = deaths(rows_since(one.trace, 0), 0, NOON // DAY + 2)
    monday = of_day(counted, "2026-11-21", {}).to_pylist()
    assert [(row["exception"], row["message"], row["count"]) for row in monday] == sorted(
        [("KeyError", "<text>", 3), (None, "disk full", 1)],
        key=lambda row: fingerprint(f"{row[0]}: 'x'" if row[0] else row[1], None).id,
    )
    of_keys = next(row for row in monday if row["exception"])
    assert of_keys["sample_ids"] == [f"{1:016x}:{n}" for n in (1, 2, 3)]
    assert (of_keys["first"].second, of_keys["sample_reason"]) == (0, "KeyError: 'a'")
    known = {(row["topic"], row["group"], row["fingerprint"]): row["count"] for row in monday}
    (tuesday,) = of_day(counted, "2026-11-22", known).to_pylist()
    assert (tuesday["count"], tuesday["day_before"]) == (4, 3)


@pytest.mark.row("R13")
def test_places_are_those_that_lie_dead_of_it_still(tables):
    one = fold(tables, life())
    wanted = fingerprint("KeyError: 'z'", None).id
    rows = rows_since(one.trace, 0)
    assert places(rows, "orders", "g", wanted) == [(0, n) for n in (1, 2, 4, 5, 6, 7)]
    assert places(rows, "orders", "other", wanted) == []


@pytest.mark.row("R13")
@pytest.mark.parametrize("seed", range(5))
def test_parts_of_the_trace_add_up_to_what_counting_one_by_one_gives(seed):
    chance = random.Random(seed)
    rows = [a_row(chance, number) for number in range(300)]
    cuts = sorted({0, len(rows), *(chance.randrange(len(rows)) for _ in range(6))})
    parts = [
        deaths(pa.Table.from_pylist(rows[low:high], ROWS), 0, 3)
        for low, high in itertools.pairwise(cuts)
    ]
    chance.shuffle(parts)
    for day in range(3):
        found = of_day(pa.concat_tables(parts), f"1970-01-0{day + 1}", {}).to_pylist()
        assert found == one_by_one(rows, day)
    assert of_day(pa.concat_tables(parts), "1970-01-04", {}).num_rows == 0


ROWS = TRACE.schema.empty_table().select(list(COLUMNS)).schema
REASONS = ("KeyError: 'a'", "KeyError: 'b'", "disk full", None)


def a_row(chance, number):
    failures = [
        {
            "time": datetime.fromtimestamp(chance.randrange(4 * 86_400), UTC),
            "outcome": chance.choice(("dead", "held", "retry")),
            "cause": chance.choice(("rejected", "time")),
            "reason": chance.choice(REASONS),
        }
        for _ in range(chance.randrange(4))
    ]
    return {
        "topic": chance.choice("ab"), "queue": chance.randrange(2), "offset": number,
        "group": chance.choice("gh"), "message_id": chance.choice((f"id-{number}", None)),
        "state": "dead", "failures": failures,
    }  # fmt: skip


def one_by_one(rows, day):
    """Return the dead letters of a day, as a person would count them."""
    found = defaultdict(list)
    for row in rows:
        for one in row["failures"]:
            if one["outcome"] != "retry" and int(one["time"].timestamp()) // 86_400 == day:
                cause = fingerprint(one["reason"], one["cause"])
                place = one["time"], row["queue"], row["offset"]
                found[row["topic"], row["group"], cause.id].append((place, one, row, cause))
    told = []
    for (topic, group, id_), some in sorted(found.items()):
        some.sort(key=lambda death: death[0])
        ids = list(dict.fromkeys(row["message_id"] for _, _, row, _ in some if row["message_id"]))
        _, first, _, cause = some[0]
        told.append({
            "topic": topic, "group": group, "fingerprint": id_,
            "exception": cause.exception or None, "message": cause.message,
            "cause": first["cause"], "count": len(some), "first": first["time"],
            "last": some[-1][1]["time"], "day_before": 0, "sample_ids": ids[:5],
            "sample_reason": first["reason"], "day": date(1970, 1, day + 1), "schema_version": 2,
        })  # fmt: skip
    return told
