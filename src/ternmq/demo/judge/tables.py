"""Judges the tables of a run: compares their content with the flights file.

The files that the tables' logs list are read column by column. Neither the broker nor the jobs that
made them are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from ternmq.demo.flights import Event
from ternmq.demo.judge.evidence import Expectation
from ternmq.demo.judge.verdict import (
    MOST_FINDINGS,
    Fault,
    Finding,
    GroupVerdict,
    TablesVerdict,
    Verdict,
)
from ternmq.demo.plan import (
    AGAIN,
    EVERYBODY,
    FLIGHTS,
    PAYMENTS,
    REMINDERS,
    TICKETS,
    WITHOUT_AIRCRAFT,
    Run,
    topic_of,
)
from ternmq.demo.tables import FOLDER

_TOPICS: Final = (FLIGHTS, WITHOUT_AIRCRAFT)
_OTHERS: Final = (REMINDERS, TICKETS, PAYMENTS)


class _Said(msgspec.Struct):
    """The part of a body that identifies the event."""

    event: str


_said: Final = msgspec.json.Decoder(_Said)


class TablesJudge:
    """Judges the tables in the folder of a run.

    Args:
        folder: Folder of the run.
        run: The options of the run.
        expected: Content of the flights file.
        verdict: The verdict so far: the groups' counts are compared with the trace.
    """

    def __init__(self, folder: Path, run: Run, expected: Expectation, verdict: Verdict) -> None:
        self._folder = folder / FOLDER
        self._run = run
        self._expected = expected
        self._verdict = verdict
        self._counts: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self.found = TablesVerdict()

    def judge(self) -> TablesVerdict:
        """Return the verdict on the tables."""
        self._archive()
        self._again()
        self._trace()
        self._audit()
        self._stats()
        self.found.faults = sum(self._counts.values())
        return self.found

    def _find(self, table: str, event: str, detail: str) -> None:
        self._counts[table] += 1
        if self._counts[table] <= MOST_FINDINGS:
            self.findings.append(Finding(Fault.TABLE, table, event, detail))

    def _rows(self, name: str, *columns: str) -> Iterator[dict[str, Any]]:
        """Yield rows of a table, file by file."""
        from ternmq.pipeline.running.jobs import all_tables
        from ternmq.pipeline.tables.folder import Folder
        from ternmq.pipeline.tables.table import Table

        (spec,) = [one for one in all_tables() if one.name == name]
        table = Table.open(Folder(str(self._folder)), spec, create=False)
        for file in table.files():
            yield from table.read_files([file], list(columns)).to_pylist()

    def _archived(self, topic: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a topic in the archive."""
        for row in self._rows("archive", "topic", "queue", "offset", "key", "body"):
            if row["topic"] == topic:
                yield row

    def _wanted(self) -> Iterator[Event]:
        for number in range(self._expected.size):
            event = self._expected.event(number)
            if event is not None:
                yield event

    def _archive(self) -> None:
        """Check that every event is in the archive, once, with its body."""
        left = {(topic_of(event), event.id): event for event in self._wanted()}
        self.found.wanted = len(left)
        places = set()
        for topic in _TOPICS:
            for row in self._archived(topic):
                self.found.archived += 1
                event_id = _id_of(row)
                place = (topic, row["queue"], row["offset"])
                if place in places:
                    self._find("archive", event_id, f"{place} is there twice")
                places.add(place)
                event = left.pop((topic, event_id), None)
                if event is None:
                    self._find("archive", event_id, "is there twice, or was never sent")
                elif row["body"] != event.body:
                    self._find("archive", event_id, "its body is not the one that was sent")
        for _, event_id in left:
            self._find("archive", event_id, "is not there")

    def _again(self) -> None:
        """Check that exactly the carrier's day was sent again, in order, once."""
        wanted = [event.id for event in self._wanted() if self._run.again(event)]
        before = self._in_order(FLIGHTS, set(wanted))
        now = self._in_order(AGAIN, None)
        self.found.again = len(now)
        self.found.again_wanted = len(wanted)
        if now != before or sorted(now) != sorted(wanted):
            told = f"{len(now)} messages were sent again, not the {len(wanted)} in their order"
            self._find(AGAIN, "", told)

    def _in_order(self, topic: str, wanted: set[str] | None) -> list[str]:
        rows = [(row["queue"], row["offset"], _id_of(row)) for row in self._archived(topic)]
        return [name for _, _, name in sorted(rows) if wanted is None or name in wanted]

    def _trace(self) -> None:
        """Check that each group has a row for each of its messages, done or dead."""
        ends: Counter[tuple[str, str]] = Counter()
        failures = 0
        for row in self._rows("trace", "topic", "group", "state", "failures", "attempts"):
            if row["group"] is None or row["topic"] not in {*_TOPICS, *_OTHERS}:
                continue
            ends[row["group"], row["state"]] += 1
            failures += len(row["failures"] or ())
        self.found.traced = sum(ends[key] for key in ends if key[1] in {"done", "dead"})
        self.found.failures = failures
        for group in EVERYBODY:
            known = self._group(group.name)
            done, dead = ends[group.name, "done"], ends[group.name, "dead"]
            if done + dead != known.owed or dead != known.dead:
                told = (
                    f"{done} done and {dead} dead, not {known.owed - known.dead} and {known.dead}"
                )
                self._find("trace", group.name, told)

    def _group(self, name: str) -> GroupVerdict:
        (found,) = [one for one in self._verdict.groups if one.name == name]
        return found

    def _audit(self) -> None:
        """Check that every row of the audit is ok, and that there are rows."""
        for row in self._rows("audit", "topic", "tier", "group", "bucket", "verdict"):
            self.found.audited += 1
            if row["verdict"] != "ok":
                of = row["group"] or row["tier"]
                self._find("audit", f"{row['topic']}, {of}", f"{row['bucket']}: {row['verdict']}")
        if not self.found.audited:
            self._find("audit", "", "has no rows")

    def _stats(self) -> None:
        """Check that the minutes add up to the number of stored messages."""
        stored = sum(
            row["stored"] or 0
            for row in self._rows("stats_minute", "topic", "group", "stored")
            if row["group"] is None and row["topic"] in _TOPICS
        )
        self.found.counted = stored
        if stored != self.found.archived:
            self._find("stats_minute", "", f"{stored} stored, and {self.found.archived} archived")


def _id_of(row: dict[str, Any]) -> str:
    return f"{row['key']}/{_said.decode(row['body']).event}"
