"""What can become of a message since it may expire, and groups have modes: told by the tables.

The journal of a real broker; planted losses are facts of it that the audit does not get to see.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import pyarrow as pa

from ternmq.pipeline.audit import runs
from ternmq.pipeline.stats.schema import STATS_MINUTE
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.job import TraceJob
from ternmq.pipeline.trace.schema import TRACE
from ternmq.spark.journal.broker import BrokerJournal
from ternmq.spark.journal.events import Events
from tests.integration import fates, living
from tests.integration.auditing import Audit
from tests.integration.scheduling import at_the_time_of_clients
from tests.unit.pipeline.trace_reference import of_table


@pytest.fixture
def ids(timed):
    at_the_time_of_clients(timed)
    return fates.day(timed)


@pytest.mark.row("R7", "R9")
def test_the_trace_and_the_statistics_tell_what_expired_and_what_failed(timed, ids, tmp_path):
    tables = Folder(str(tmp_path / "tables"))
    living.run(timed, tables, TraceJob())
    found = Table.open(tables, TRACE, create=False).read()
    assert of_table(found) == living.reference(timed).told()

    def told(group):
        some = [row for row in found.to_pylist() if row["group"] == group]
        some.sort(key=lambda row: row["offset"])
        return [(row["state"], row["last_cause"], row["deliveries"]) for row in some]

    done, dead, dropped = ("done", None, 1), ("dead", "expired", 0), ("expired", None, 0)
    assert told("traders") == [done, dead, done, dead, done, done]
    assert told("screen") == [done, dropped, done, dropped, done, done]
    assert told("$b.web-1") == [done, done, ("failed", "failed", 1)]
    assert told("$b.web-2") == [done] * 3
    assert {state for state, _, _ in told("work")} == {"done"}
    (failed,) = [row for row in found.to_pylist() if row["state"] == "failed"]
    assert (failed["last_reason"], failed["open"]) == ("KeyError: 'tea'", False)
    assert (failed["end_to_end_us"], failed["handling_us"]) == (None, None)
    (failure,) = failed["failures"]
    assert (failure["outcome"], failure["cause"], failure["attempt"]) == ("failed", "failed", 1)
    counts = Table.open(tables, STATS_MINUTE, create=False).read().to_pylist()

    def counted(group):
        some = [row for row in counts if row["group"] == group]
        names = ("delivered", "done", "dead", "expired")
        return [sum(row[name] for row in some) for name in names]

    assert counted("traders") == [4, 4, 2, 0]
    assert counted("screen") == [4, 4, 0, 2]
    assert counted("$b.web-1") == [3, 2, 1, 0]
    assert counted("$b.web-2") == [3, 3, 0, 0]


@pytest.mark.row("R5")
def test_the_journal_source_tells_what_expired_what_failed_and_which_mode_a_group_has(timed, ids):
    port = BrokerJournal(living.address(timed))
    bounds = port.bounds()
    events = Events(port.names(bounds.oldest))
    for page in port.pages(bounds.oldest, bounds.end):
        events.add(page)
    port.close()
    names = ("kind", "name", "group", "start", "outcome", "cause", "reason", "session", "detail")
    found = events.table(names).to_pylist()

    def settled(group, outcome, cause):
        some = [one for one in found if (one["group"], one["outcome"]) == (group, outcome)]
        return [(one["start"], one["reason"]) for one in some if one["cause"] == cause]

    assert settled("traders", "dead", "expired") == [(1, None), (3, None)]
    assert settled("screen", "done", "expired") == [(1, None), (3, None)]
    assert settled("$b.web-1", "done", "failed") == [(2, "KeyError: 'tea'")]
    modes = [
        (one["group"], one["name"], json.loads(one["detail"])["spec"].get("mode", "shared"))
        for one in found
        if one["kind"] == "config" and one["group"] in {"ledger", "leader", "work", "$b.web-2"}
    ]
    assert ("ledger", "subscribed", "owned") in modes
    assert ("leader", "subscribed", "exclusive") in modes
    assert ("$b.web-2", "subscribed", "broadcast") in modes
    assert [mode for group, _, mode in modes if group == "work"] == [
        "ordered", "shared", "queue_lock", "owned", "exclusive",
    ]  # fmt: skip


@pytest.mark.row("R8")
def test_the_audit_counts_what_expired_or_was_dropped_and_finds_no_fault(timed, ids, tmp_path):
    audit = Audit(timed.port, tmp_path / "tables")
    audit.archive()
    assert audit.run().findings == []
    assert audit.findings() == []
    assert audit.verdicts() == audit.verdicts("group") == audit.verdicts("archive") == {"ok"}
    assert audit.total("sent") == audit.total("stored") == len(ids)
    assert audit.total("archived", "archive") == len(ids), "of the broadcast topic, too"
    groups: dict[str, dict[str, int]] = {}
    for row in audit.rows(tier="group"):
        told = groups.setdefault(row["group"], dict.fromkeys(COUNTED, 0))
        for name in COUNTED:
            told[name] += row[name]
    nothing = dict.fromkeys(COUNTED, 0)
    assert groups == {
        "traders": nothing | {"settled": 4, "expired_dead": 2},
        "screen": nothing | {"settled": 4, "expired_dropped": 2},
        "ledger": nothing | {"settled": 8},
        "leader": nothing | {"settled": 8},
        "late": nothing | {"passed": 8},
        "work": nothing | {"settled": 8},
    }, "broadcast instances are not judged"
    assert all(row["final"] for row in audit.rows())


COUNTED = ("settled", "passed", "expired", "expired_dead", "expired_dropped", "lost")


def _of(topic=None, group=None, kinds=(), start=0, queue=0, **columns):
    """Return a function that chooses facts about the rows from an offset on."""
    wanted = columns | {"start": start, "queue": queue} | ({"topic": topic} if topic else {})
    return lambda fact: (
        fact["kind"] in kinds
        and (group is None or fact["group"] == group)
        and all(fact[name] == value for name, value in wanted.items())
    )


HANDED_OUT = ("pulled", "settled", "skipped", "parked")
PLANTED = {
    "an expired message was not stored": (_of("quotes", kinds=["stored"], start=1), None, 1),
    "the end of a dead one": (_of("quotes", "traders", ["settled"], 1), "traders", 1),
    "the end of a dropped one": (_of("quotes", "screen", ["settled"], 3), "screen", 1),
    "a broadcast message was not stored": (_of("prices", kinds=["stored"], start=2), None, 1),
    "deliveries to an instance": (_of("prices", "$b.web-1", HANDED_OUT), "", 3),
    "what failed in an instance": (_of("prices", "$b.web-1", ["settled"], 2), "", 1),
    "of an owned group": (_of("accounts", "ledger", HANDED_OUT, queue=1), "ledger", 2),
    "of an exclusive group": (_of("accounts", "leader", HANDED_OUT, queue=0), "leader", 2),
    "before the mode changed": (_of("jobs", "work", HANDED_OUT), "work", 2),
    "after the mode changed": (_of("jobs", "work", HANDED_OUT, 4), "work", 2),
}
"""Facts to leave out; the group that lost the rows, None: they are not stored, "": nobody did."""


@pytest.mark.row("R8")
def test_planted_losses_are_named_and_no_others(timed, ids, tmp_path, monkeypatch):
    gather = runs.gather
    for number, (name, (chosen, loser, rows)) in enumerate(PLANTED.items()):
        gone: list[Any] = []

        def without(events, grace_us, chosen=chosen, gone=gone):
            whole = (
                pa.Table.from_batches([events]) if isinstance(events, pa.RecordBatch) else events
            )
            facts = whole.to_pylist()
            left_out = [chosen(fact) for fact in facts]
            gone += [fact for fact, out in zip(facts, left_out, strict=True) if out]
            return gather(whole.filter(pa.array([not out for out in left_out])), grace_us)

        monkeypatch.setattr(runs, "gather", without)
        audit = Audit(timed.port, tmp_path / str(number))
        audit.run()
        places = {
            (fact["topic"], fact["queue"], offset)
            for fact in gone
            for offset in range(fact["start"], fact["stop"])
        }
        assert len(places) == rows, name
        wanted = sorted(ids[place] for place in places) if loser != "" else []
        found = audit.findings()
        assert sorted(one["message_id"] for one in found) == wanted, name
        assert {(one["kind"], one["group"]) for one in found} <= {("lost", loser)}, name
        verdicts = {(row["tier"], row["group"]): row["verdict"] for row in audit.rows()
                    if row["verdict"] != "ok"}  # fmt: skip
        where = "stored" if loser is None else "group"
        assert verdicts == ({(where, loser): "lost"} if wanted else {}), name
