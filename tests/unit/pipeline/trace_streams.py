"""Random lives of messages, as events: nothing that no broker would write, else anything."""

from __future__ import annotations

import json

import pyarrow as pa

from ternmq.pipeline.trace.schema import EVENTS
from ternmq.spark import schema
from ternmq.spark.journal.events import COLUMNS
from tests.unit.pipeline.trace_reference import Reference

NOON = 1_795_262_400_000_000
KINDS = schema.arrow({name: COLUMNS[name] for name in EVENTS})
TOPICS = {1: "orders", 2: "mail"}
NEXT = {"stored", "waiting", "released", "held"}


def table(events):
    """Return events as the journal source gives them."""
    return pa.table(
        [
            pa.array([one.get(name) for one in events], KINDS.field(name).type)
            for name in KINDS.names
        ],
        schema=KINDS,
    )


class Stream:
    """Makes events by chance, and keeps the reference that they lead to."""

    def __init__(self, chance):
        self.chance = chance
        self.events = []
        self.reference = Reference()
        self.position = 4096
        self.time = NOON
        self.ends = {}
        self.producer = 0
        self.lives = {}  # group -> topic
        self.rounds = {}

    def put(self, kind, **told):
        topic = told.get("topic_number")
        event = {
            "position": self.position, "part": 0, "time": self.time, "kind": kind,
            "topic": TOPICS.get(topic or 0), "app": None, "client": None, **told,
        }  # fmt: skip
        if "start" in told:
            event["rows"] = told["stop"] - told["start"]
        if "group_number" in told:
            event["group"] = f"g{told['group_number']}"
        self.events.append(event)
        self.reference.apply(event)

    def step(self):
        chance = self.chance
        self.position += chance.randrange(8, 400, 8)
        self.time += chance.choice((1, 1000, 1_000_000, 60_000_000, 1_500_000_000))
        doing = chance.choices(
            (self.store, self.pull, self.settle, self.move, self.subscribe, self.leave, self.again),
            (6, 8, 8, 2, 1, 0.3, 1),
        )[0]
        doing()

    def place(self):
        return self.chance.choice((1, 1, 2)), self.chance.choice((0, 0, 1))

    def store(self):
        topic, queue = self.place()
        start = self.ends.get((topic, queue), 0)
        count = self.chance.choice((1, 1, 3, 20))
        self.producer += 1
        sent = {
            "producer_id": -self.producer if self.producer % 2 else self.producer,
            "sequence": self.chance.randrange(1, 1000), "born_time": self.time - 5000,
        }  # fmt: skip
        told = {"topic_number": topic, "queue": queue, "start": start, "stop": start + count}
        if self.chance.random() < 0.1:
            refers = self.prepared(topic, count, sent, queue=queue)
            self.put("resolved", **told, decision="committed", refers_to=refers, bytes=90 * count,
                     transaction=self.position)  # fmt: skip
        else:
            self.put("stored", **told, bytes=100 * count, **sent)
        self.ends[topic, queue] = start + count

    def prepared(self, topic, count, sent, **more):
        """Prepare rows, and perhaps copy them; return the position that a decision refers to."""
        refers = None
        while refers is None or self.chance.random() < 0.3:
            self.put("prepared", topic_number=topic, rows=count, refers_to=refers, **sent, **more)
            refers = self.position
            self.position += 8
        return refers

    def group(self):
        """Return a group, and a queue of its topic that has messages."""
        if not self.lives:
            return None
        group = self.chance.choice(sorted(self.lives))
        topic = self.lives[group]
        queues = [q for t, q in self.ends if t == topic]
        return (group, topic, self.chance.choice(queues)) if queues else None

    def runs(self, chosen, states):
        """Yield runs of rows of a group that stand so, none longer than five."""
        group, topic, queue = chosen
        offsets = sorted(
            key[2]
            for key, row in self.reference.rows.items()
            if key[0] == topic and key[1] == queue and key[3] == group and row["state"] in states
        )
        if not offsets:
            return
        begin = self.chance.randrange(len(offsets))
        start = last = offsets[begin]
        for at in offsets[begin + 1 : begin + 1 + self.chance.randrange(6)]:
            if at != last + 1:
                yield start, last + 1
                start = at
            last = at
        yield start, last + 1

    def about(self, states):
        chosen = self.group()
        if chosen is None:
            return
        group, topic, queue = chosen
        for start, stop in self.runs(chosen, states):
            yield {
                "group_number": group, "topic_number": topic, "queue": queue, "start": start,
                "stop": stop,
            }  # fmt: skip

    def pull(self):
        kind = self.chance.choice(("pulled",) * 8 + ("skipped", "parked"))
        who = self.chance.choice(("anna", "bert", None))
        for told in list(self.about(NEXT)):
            if kind == "pulled":
                self.put(kind, **told, client=who, app="shop" if who else None,
                         attempt=self.chance.randrange(1, 4), deliveries=1)  # fmt: skip
            else:
                self.put(kind, **told)

    def settle(self):
        outcome = self.chance.choice(
            ("done", "done", "done", "retry", "retry", "dead", "released", "held")
        )
        cause = self.chance.choice(
            ("consumer", "consumer", "time", "operator", "expired", "rejected")
        )
        if outcome == "done" and self.chance.random() < 0.2:
            cause = "failed"  # in a broadcast instance
        kind = "ended" if cause == "time" else "settled"
        states = {"leased"} if cause != "operator" else {"waiting", "dead"}
        for told in list(self.about(states)):
            self.put(
                kind, **told, outcome=outcome, cause=cause, attempt=self.chance.randrange(1, 4),
                deliveries=1, round=self.rounds.get(told["group_number"], 0),
                client=self.chance.choice(("anna", None)), app="shop",
                reason=self.chance.choice((None, "broken", f"no {self.position}")),
            )  # fmt: skip

    def move(self):
        chosen = self.group()
        if chosen is None:
            return
        group, topic, queue = chosen
        cause = self.chance.choice(("reset", "skip", "filtered", "commit", "expired"))
        if cause == "reset":
            self.rounds[group] = self.rounds.get(group, 0) + 1
        self.put(
            "cursor", group_number=group, topic_number=topic, queue=queue, cause=cause,
            cursor=self.chance.randrange(self.ends[topic, queue] + 1),
            round=self.rounds.get(group, 0),
        )  # fmt: skip

    def subscribe(self):
        group, topic = 10 + len(self.reference.groups) + self.position, self.place()[0]
        ends = [self.ends.get((topic, 0), 0), self.ends.get((topic, 1), 0)]
        cursors = [self.chance.randrange(end + 1) for end in ends]
        told = {"group": group, "group_name": f"g{group}", "topic": topic, "cursors": cursors}
        self.lives[group] = topic
        self.put(
            "config", group_number=group, topic_number=topic, name="subscribed",
            detail=json.dumps(told),
        )  # fmt: skip

    def leave(self):
        if len(self.lives) < 2:
            return
        group = self.chance.choice(sorted(self.lives))
        topic = self.lives.pop(group)
        self.put(
            "config", group_number=group, topic_number=topic, name="unsubscribed",
            detail=json.dumps({"group": group, "topic": topic}),
        )  # fmt: skip

    def again(self):
        ready = self.chance.random() < 0.8
        for told in list(self.about({"done", "dead", "waiting", "skipped"})):
            group = told["group_number"]
            self.rounds[group] = self.rounds.get(group, 0) + 1
            self.put("replayed", **told, attempt=1 if ready else None, round=self.rounds[group])
