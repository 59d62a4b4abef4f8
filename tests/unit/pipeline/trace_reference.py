"""The trace in plain words: one event at a time, one row at a time. What the fold is held to."""

from __future__ import annotations

import json
from datetime import UTC, datetime

MINUTE = 60_000_000
OPEN = {"stored", "leased", "waiting", "released", "held"}
AFTER = {"done": "done", "retry": "waiting", "dead": "dead", "released": "released", "held": "held"}


def hour_of(time):
    return datetime.fromtimestamp(time // 1_000_000, UTC).strftime("%Y-%m-%dT%H")


PLAIN = (
    "deliveries", "attempts", "first_client", "last_client", "last_app", "state", "last_cause",
    "last_reason", "round", "hour", "end_to_end_us", "handling_us", "open",
    "transaction", "settled_by",
)  # fmt: skip
TIMES = ("first_delivered", "last_delivered", "state_time")


class Reference:
    """Messages by (topic, queue, offset); rows by the same and the group."""

    def __init__(self):
        self.messages = {}
        self.rows = {}
        self.groups = {}  # number -> (topic, name, cursors or None)
        self.done = []
        self.prepared = {}

    def apply(self, event):
        kind = event["kind"]
        if kind == "config":
            self._config(event)
        elif kind == "prepared":
            self.prepared[event["position"]] = event
        elif kind in {"stored", "resolved"}:
            if kind == "stored" or event.get("decision") == "committed":
                self._stored(event)
        elif kind == "moved":
            for at in range(event["start"], event["stop"]):
                message = self.messages.get((event["topic_number"], event["queue"], at))
                if message and message["sequence"] is None:
                    message["producer"] = event["producer_id"]
                    message["sequence"] = event["sequence"] + at - event["start"]
                    message["born"] = event["born_time"]
        elif kind == "cursor":
            self._cursor(event)
        elif kind in {"pulled", "skipped", "parked", "settled", "ended", "replayed"}:
            for at in range(event["start"], event["stop"]):
                self._row(event, at)

    def _config(self, event):
        told = json.loads(event["detail"])
        if event["name"] == "subscribed":
            self.groups[told["group"]] = told["topic"], told["group_name"], told["cursors"]
            for topic, queue, offset in self.messages:
                cursors = told["cursors"]
                cursor = cursors[queue] if queue < len(cursors) else 0
                if topic == told["topic"] and offset >= cursor:
                    self._begin(topic, queue, offset, told["group"])
        elif event["name"] == "unsubscribed":
            self.groups.pop(told["group"], None)
            for key, row in self.rows.items():
                if key[3] == told["group"] and row["state"] in OPEN:
                    row |= {"state": "skipped", "state_time": event["time"]}

    def _stored(self, event):
        before = event
        if event["kind"] == "resolved":
            before = self.prepared.get(event.get("refers_to"), event)
        for n, offset in enumerate(range(event["start"], event["stop"])):
            key = event["topic_number"], event["queue"], offset
            self.messages[key] = {
                "producer": before.get("producer_id"),
                "sequence": None if before.get("sequence") is None else before["sequence"] + n,
                "born": before.get("born_time"), "stored": event["time"],
                "position": event["position"], "seen": event["time"],
                "transaction": event.get("transaction"),
            }  # fmt: skip
            for number, (topic, _, _) in self.groups.items():
                if topic == key[0]:
                    self._begin(*key, number)

    def _begin(self, topic, queue, offset, group):
        key = topic, queue, offset, group
        if key not in self.rows:
            self.rows[key] = {
                "first_delivered": None, "last_delivered": None, "deliveries": 0, "attempts": 0,
                "first_client": None, "last_client": None, "last_app": None, "state": "stored",
                "state_time": self.messages[key[:3]]["seen"], "last_cause": None,
                "last_reason": None, "failures": [], "round": 0, "settled_by": None,
            }  # fmt: skip
        return self.rows[key]

    def _row(self, event, offset):
        place = event["topic_number"], event["queue"], offset
        self.messages.setdefault(
            place,
            {"producer": None, "sequence": None, "born": None, "stored": None, "position": None,
             "seen": event["time"], "transaction": None},
        )  # fmt: skip
        row = self._begin(*place, event["group_number"])
        row["state_time"] = event["time"]
        kind, outcome, cause = event["kind"], event.get("outcome"), event.get("cause")
        for name in ("attempts", "round"):
            told = event.get(name.removesuffix("s"))
            if told is not None and (name == "round" or kind != "replayed"):
                row[name] = told
        if kind == "pulled":
            if row["first_delivered"] is None:
                row |= {"first_delivered": event["time"], "first_client": event["client"]}
            row |= {
                "state": "leased", "last_delivered": event["time"], "last_client": event["client"],
                "last_app": event["app"], "deliveries": row["deliveries"] + 1,
            }  # fmt: skip
        elif kind == "skipped":
            row["state"] = "skipped"
        elif kind == "parked":
            row["state"] = "waiting"
        elif kind == "replayed":
            row["state"] = "waiting" if event.get("attempt") is not None else "stored"
        else:
            row["state"] = AFTER[outcome]
            row["settled_by"] = event.get("transaction")
            told = outcome
            if outcome == "done" and cause in {"operator", "expired", "failed"}:
                told = {"operator": "skipped"}.get(cause, cause)
                row["state"] = told
            if told in {"retry", "dead", "held", "failed"} and cause != "operator":
                row |= {"last_cause": cause, "last_reason": event.get("reason")}
                row["failures"] = [
                    *row["failures"],
                    (event["time"], event["attempt"], event["client"],
                     told, cause, event.get("reason")),
                ][-50:]  # fmt: skip
            if row["state"] == "done":
                born, last = self.messages[place]["born"], row["last_delivered"]
                self.done.append(
                    (event["position"], *place, event["group_number"], event["app"],
                     None if born is None else event["time"] - born,
                     None if last is None else event["time"] - last)
                )  # fmt: skip

    def _cursor(self, event):
        place = event["topic_number"], event["queue"]
        group, cursor = event["group_number"], event["cursor"]
        if event["cause"] == "reset":
            for topic, queue, offset in self.messages:
                if (topic, queue) == place and offset >= cursor:
                    row = self._begin(topic, queue, offset, group)
                    row |= {"state": "stored", "state_time": event["time"], "round": event["round"]}
        for key, row in self.rows.items():
            if key[:2] != place or key[3] != group or key[2] >= cursor:
                continue
            if event["cause"] == "reset":
                if row["state"] in OPEN:
                    row |= {"state": "skipped", "state_time": event["time"]}
            elif row["state"] == "stored":
                state = {"expired": "expired", "commit": "done"}.get(event["cause"], "skipped")
                row |= {"state": state, "state_time": event["time"]}

    def told(self):
        """Return rows as ``of_table`` returns those of the table."""
        found = {}
        with_group = {key[:3] for key in self.rows}
        for key, row in self.rows.items():
            found[key] = self._told(key, row)
        for place, message in self.messages.items():
            if place not in with_group:
                row = {
                    "first_delivered": None, "last_delivered": None, "deliveries": 0,
                    "attempts": 0, "first_client": None, "last_client": None, "last_app": None,
                    "state": "stored", "state_time": message["seen"], "last_cause": None,
                    "last_reason": None, "failures": [], "round": 0, "settled_by": None,
                }  # fmt: skip
                found[*place, None] = self._told((*place, None), row)
        return found

    def _told(self, key, row):
        message = self.messages[key[:3]]
        done = row["state"] == "done" and row["last_delivered"] is not None
        born = message["born"]
        return row | {
            "message": (message["producer"], message["sequence"], born, message["stored"],
                        message["position"]),
            "hour": hour_of(message["seen"]), "transaction": message["transaction"],
            "end_to_end_us": row["state_time"] - born if done and born is not None else None,
            "handling_us": row["state_time"] - row["last_delivered"] if done else None,
            "open": int(row["state"] in OPEN),
        }  # fmt: skip


def micros(time):
    return (
        None
        if time is None
        else round((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6)
    )


def of_table(table):
    """Return rows of the table as ``Reference.told`` has them."""
    found = {}
    for row in table.to_pylist():
        key = row["topic_number"], row["queue"], row["offset"], row["group_number"]
        assert key not in found, f"two rows for {key}"
        found[key] = {name: row[name] for name in PLAIN}
        found[key] |= {name: micros(row[name]) for name in TIMES}
        found[key]["message"] = (
            row["producer_id"], row["sequence"], micros(row["born_time"]),
            micros(row["stored_time"]), row["position"],
        )  # fmt: skip
        found[key]["failures"] = [
            (micros(one["time"]), one["attempt"], one["client"], one["outcome"], one["cause"],
             one["reason"])
            for one in row["failures"]
        ]  # fmt: skip
    return found
