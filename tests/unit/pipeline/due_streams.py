"""Random lives of scheduled messages among those of others, and the rows that they lead to."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from tests.unit.pipeline.trace_streams import NOON, Stream

DAY = 86_400_000_000
LONELY = 3
"""A topic without groups; it is deleted."""
UNKNOWN = {
    "topic": None, "application_id": None, "sent": None, "scheduled_time": None, "position": None,
    "delivered": None, "cancelled": None, "gone_time": None, "transaction": None,
}  # fmt: skip


class DueStream(Stream):
    """A ``Stream`` with scheduled messages; ``rows`` has those of the table, by entry."""

    def __init__(self, chance):
        super().__init__(chance)
        self.rows: dict[int, Any] = {}
        self.sources: dict[int, int] = {}
        """Where rows of transactions were prepared, by entry."""
        self.entry = 1
        self.deleted: set[int] = set()

    def step(self):
        if self.chance.random() < 0.4:
            return super().step()
        self.position += self.chance.randrange(8, 400, 8)
        self.time += self.chance.choice((1, 1000, 1_000_000, 60_000_000))
        doing = (self.schedule, self.deliver, self.cancel, self.copy, self.again_twice, self.delete)
        return self.chance.choices(doing, (8, 8, 3, 2, 0.5, 0.5))[0]()

    def pending(self, topic=None):
        return [
            entry
            for entry, row in self.rows.items()
            if not (row["delivered"] or row["cancelled"] or row["gone_time"])
            and topic in {None, row["topic_number"]}
        ]

    def schedule(self):
        topic, count = self.chance.choice((1, 2, LONELY)), self.chance.choice((1, 1, 3, 20))
        if topic in self.deleted:
            return
        self.producer += 1
        due = self.time + self.chance.choice((5, 60_000_000, DAY, 2 * DAY, 40 * DAY))
        sent = {"producer_id": -self.producer, "sequence": self.chance.randrange(1, 1000),
                "born_time": self.time - 5000}  # fmt: skip
        if self.chance.random() < 0.3:
            self.commit(topic, count, due, sent)
            return
        ids = [self.chance.choice((None, f"id {self.position} {n}")) for n in range(count)]
        named = self.chance.random() < 0.5
        for part in range(self.chance.choice((1, 1, 2))):
            self.put(
                "scheduled", part=part, topic_number=topic, entry=self.entry, rows=count,
                due=due + part, detail=json.dumps({"application_ids": ids}) if named else None,
                **(sent | {"sequence": sent["sequence"] + part * count}),
            )  # fmt: skip
            for number in range(count):
                self.rows[self.entry + number] = UNKNOWN | {
                    "topic_number": topic, "due_time": due + part,
                    "sent": (sent["producer_id"], sent["sequence"] + part * count + number,
                             sent["born_time"]),
                    "application_id": ids[number] if named else None,
                    "scheduled_time": self.time, "position": self.position,
                }  # fmt: skip
            self.entry += count

    def commit(self, topic, count, due, sent):
        """Schedule rows in a transaction: neighbours may have different due times."""
        refers = self.prepared(topic, count, sent)
        for _ in range(self.chance.choice((0, 0, 5))):
            super().step()
        self.position += 8
        told = {"topic_number": topic, "refers_to": refers, "transaction": self.position}
        self.put("resolved", **told, rows=count, entry=self.entry, decision="scheduled", bytes=9)
        cut = self.chance.randrange(count) if count > 1 else 0
        for part, (first, stop) in enumerate(((0, cut), (cut, count)), 1):
            if first == stop:
                continue
            self.put(
                "scheduled", part=part, **told, entry=self.entry + first, rows=stop - first,
                due=due + part, detail=json.dumps({"first_row": first}),
            )  # fmt: skip
            for row in range(first, stop):
                self.rows[self.entry + row] = UNKNOWN | {
                    "topic_number": topic, "due_time": due + part,
                    "sent": (sent["producer_id"], sent["sequence"] + row, sent["born_time"]),
                    "scheduled_time": self.time, "position": self.position,
                    "transaction": self.position,
                }  # fmt: skip
                self.sources[self.entry + row] = refers
        self.entry += count

    def neighbours(self, entries):
        """Return a few entries that follow one another, with one due time and sender."""
        if not entries:
            return []
        first = self.chance.choice(entries)
        found = [first]
        row = self.rows[first]
        while len(found) < 5 and found[-1] + 1 in entries:
            other = self.rows[found[-1] + 1]
            if any(other[name] != row[name] for name in ("due_time", "position")):
                break
            found.append(found[-1] + 1)
        return found

    def _deliver(self, entries):
        row = self.rows[entries[0]]
        topic, queue = row["topic_number"], self.chance.choice((0, 1))
        start = self.ends.get((topic, queue), 0)
        self.ends[topic, queue] = start + len(entries)
        producer, sequence, born = row["sent"]
        self.put(
            "stored", topic_number=topic, queue=queue, start=start, stop=start + len(entries),
            entry=entries[0], due=row["due_time"], refers_to=self.source(entries[0]), bytes=9,
            producer_id=producer, sequence=sequence, born_time=born,
        )  # fmt: skip
        for number, entry in enumerate(entries):
            if not self.rows[entry]["delivered"]:
                self.rows[entry]["delivered"] = (self.time, queue, start + number)

    def deliver(self):
        if entries := self.neighbours(self.pending()):
            self._deliver(entries)

    def source(self, entry):
        """Return where the record is that has a row."""
        return self.sources.get(entry, self.rows[entry]["position"])

    def again_twice(self):
        """Deliver what was delivered: no broker does that, and the first time counts."""
        over = [entry for entry, row in self.rows.items() if row["delivered"]]
        over = [entry for entry in over if self.rows[entry]["topic_number"] not in self.deleted]
        if over:
            self._deliver([self.chance.choice(over)])

    def cancel(self):
        entries = self.neighbours(self.pending())
        if not entries:
            return
        row, cause = self.rows[entries[0]], self.chance.choice(("client", "unreadable"))
        self.put(
            "cancelled", topic_number=row["topic_number"], entry=entries[0], rows=len(entries),
            due=row["due_time"], cause=cause,
        )  # fmt: skip
        for entry in entries:
            self.rows[entry]["cancelled"] = (self.time, cause)

    def copy(self):
        entries = self.neighbours(self.pending())
        if not entries:
            return
        row = self.rows[entries[0]]
        producer, sequence, born = row["sent"]
        ids = [self.rows[entry]["application_id"] for entry in entries]
        self.put(
            "copied", topic_number=row["topic_number"], entry=entries[0], rows=len(entries),
            due=row["due_time"], refers_to=self.source(entries[0]), producer_id=producer,
            sequence=sequence, born_time=born,
            detail=json.dumps({"scheduled_us": row["scheduled_time"], "application_ids": ids}),
        )  # fmt: skip

    def delete(self):
        if self.deleted or self.position < 20_000:
            return
        self.deleted.add(LONELY)
        detail = json.dumps({"number": LONELY})
        self.put("config", topic_number=LONELY, name="topic-deleted", detail=detail)
        for entry in self.pending(LONELY):
            self.rows[entry]["gone_time"] = self.time

    def told(self):
        """Return the rows, as ``of_scheduled`` returns those of the table."""
        found = {}
        for entry, row in self.rows.items():
            state = next((name for name, column in STATES if row[column]), "pending")
            found[entry] = {name: row[name] for name in row if name != "topic"} | {"state": state}
        return found


STATES = (("delivered", "delivered"), ("cancelled", "cancelled"), ("gone", "gone_time"))
assert NOON % 1_000_000 == 0


def micros(time):
    since = datetime(1970, 1, 1, tzinfo=UTC)
    return None if time is None else round((time - since).total_seconds() * 1e6)


def of_scheduled(table):
    """Return rows of the table ``scheduled`` by entry; each entry has one."""
    found = {}
    for row in table.to_pylist():
        assert row["entry"] not in found
        sent = row["producer_id"], row["sequence"], micros(row["born_time"])
        times = {
            name: micros(row[name])
            for name in ("due_time", "scheduled_time", "gone_time", "delivered_time",
                         "cancelled_time")
        }  # fmt: skip
        delivered, cancelled = times.pop("delivered_time"), times.pop("cancelled_time")
        found[row["entry"]] = times | {
            "topic_number": row["topic_number"], "application_id": row["application_id"],
            "position": row["position"], "state": row["state"],
            "transaction": row["transaction"],
            "sent": None if row["sequence"] is None else sent,
            "delivered": None if delivered is None else (delivered, row["queue"], row["offset"]),
            "cancelled": None if cancelled is None else (cancelled, row["cancel_cause"]),
        }  # fmt: skip
        assert row["open"] == (row["state"] == "pending")
        assert (row["message_id"] is None) == (row["sequence"] is None)
        assert row["day"] == row["due_time"].date()
    return found
