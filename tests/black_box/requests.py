"""A sound request of every command, and the commands that docs/protocol/index.md lists."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Final, NamedTuple

from tests.black_box.stranger import (
    APP_PUT,
    CANCEL,
    CHECKER_OFFER,
    FAILED_QUERY,
    GROUP_COMMIT,
    GROUP_JOIN,
    GROUP_LEAVE,
    GROUP_LIST,
    HOLD_DELETE,
    HOLD_LIST,
    HOLD_PUT,
    JOURNAL_CATALOG,
    JOURNAL_READ,
    NUMBERS_TAKE,
    PREPARE,
    PRODUCER_GROUP_DELETE,
    PRODUCER_GROUP_LIST,
    PRODUCER_GROUP_PUT,
    PULL,
    QUEUE_RANGES,
    READ,
    SCHEDULE_CANCEL,
    SCHEDULE_HOURS,
    SCHEDULE_LIST,
    SEND,
    SETTLE,
    TOPIC_CREATE,
    TOPIC_LIST,
    TRANSACTION_ABORT,
    TRANSACTION_CHECK_AGAIN,
    TRANSACTION_COMMIT,
    TRANSACTION_DECIDE,
    TRANSACTION_LIST,
    TRANSACTION_MOVE,
    TRANSACTION_PREPARE,
    TRANSACTION_READ,
    TRANSACTION_SETTLE,
    TRANSACTION_SHOW,
    journal_body,
    make_batch,
    names,
    pack,
    prepare_body,
    pull_body,
    read_body,
    send_body,
    sizes,
    transaction_body,
)

PAGE: Final = Path(__file__).parents[2] / "docs" / "protocol" / "index.md"
_ROW: Final = re.compile(
    r"^\| (\d+) \| \[(\w+)\]\(\S+\) \| .*? \| .*? \| ([a-z][^|]*?) \|", re.MULTILINE
)
OF_THE_CONNECTION: Final = frozenset({"HELLO", "PING", "BYE"})
"""They have no body, or open and end a connection: tested by themselves."""


class Listed(NamedTuple):
    """A row of the page's table.

    Attributes:
        number: Of the command.
        name: Of the command.
        who: The right that an app needs, in the page's words.
    """

    number: int
    name: str
    who: str


def listed() -> list[Listed]:
    """Return the commands that a client can send, as the page lists them."""
    found = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    return [Listed(int(number), name, who) for number, name, who in found]


def sound_requests(topic: str, group: str = "g") -> list[tuple[int, bytes]]:
    """Return requests of every command, as they should be.

    What is deleted has other names than the topic and the group that the others are about.
    """
    batch = make_batch(topic, [b"x"] * 3, 1, 0)
    both = {"topic": topic, "group": group}
    here = {**both, "queue": 0}
    return [
        (SEND, send_body(topic, batch)),
        (PULL, pull_body(topic, group)),
        (SETTLE, struct.pack("<IIQqIHBB", 1, 0, 1, -1, 1, 0, 0, len(topic)) + sizes(group)
         + struct.pack("<QQ", 0, 3) + names(topic, group)),
        (13, struct.pack("<IIQQ", 1, 0, 1, 1000) + sizes(topic, group) + names(topic, group)),
        (READ, read_body(topic, 0, 0)),
        (PREPARE, prepare_body(topic, "writer", 1, "0/0", batch)),
        (JOURNAL_READ, journal_body(0)),
        (CANCEL, struct.pack("<Q", 1)),
        (5, pack({"leases": []})),
        (20, pack({"topic": topic, "producer": 1,
                   "entries": [{"bucket_us": 0, "sent": 1, "given_up": 0}]})),
        (NUMBERS_TAKE, pack({"topic": topic, "count": 100, "reserve": True})),
        (TOPIC_CREATE, pack({"topic": topic, "spec": {"name": topic}})),
        (31, pack({"topic": topic, "spec": {"name": topic, "queues": 2}})),
        (32, pack({"topic": f"{topic}.gone"})),
        (TOPIC_LIST, pack({"names": [topic], "after": "", "limit": 10})),
        (GROUP_JOIN, pack({**both, "tags": "a || b", "mode": "shared"})),
        (GROUP_JOIN, pack({**both, "filter": "a = 1 OR b IS NULL"})),
        (GROUP_JOIN, pack({**both, "mode": "owned", "member": True, "name": "m-1",
                           "assign": [{"queues": [0], "member": "m-*"}]})),
        (GROUP_LEAVE, pack(both)),
        (41, pack({**both, "spec": {"lease_us": 10**6, "window": 10}})),
        (42, pack({"topic": topic, "group": f"{group}.gone"})),
        (GROUP_LIST, pack(both)),
        (44, pack({**here, "offset": 0, "dry_run": True})),
        (44, pack({**both, "to": "latest", "queue": 1})),
        (45, pack({**here, "offset": 0})),
        (GROUP_COMMIT, pack({**both, "places": [{"queue": 0, "offset": 0}]})),
        (47, pack({**both, "spans": [{"queue": 0, "start": 0, "stop": 1}], "dry_run": True})),
        (47, pack({**both, "ids": ["1:0"]})),
        (50, pack({"topic": topic, "key": "k", "limit": 3, "after": "1.2.3"})),
        (50, pack({"topic": topic, "id": "1:0"})),
        (50, pack({"topic": topic, "offset": 0, "queue": 0})),
        (51, pack({"topic": topic, "queue": 0, "time_us": 5})),
        (52, pack({**here, "dead": False, "after": 3})),
        (53, pack({**here, "offsets": [0, 1]})),
        (54, pack({**here, "offsets": [0, 1]})),
        (55, pack({**here, "after": -1, "limit": 10, "dry_run": True})),
        (FAILED_QUERY, pack({**here, "select": {"states": ["dead"], "since_us": 5}})),
        (FAILED_QUERY, pack({**here, "newest": True, "limit": 10, "after": "7"})),
        (FAILED_QUERY, pack({**here, "count": True, "select": {"until_us": 9}})),
        (FAILED_QUERY, pack({**here, "key": "k"})),
        (FAILED_QUERY, pack({**here, "id": "1:0"})),
        (52, pack({**here, "dead": True, "offsets": [0, 1]})),
        (53, pack({**here, "offsets": [0], "only": {"states": ["held"]}, "dry_run": True})),
        (60, pack({})), (61, pack({})), (62, pack({})),
        (APP_PUT, pack({"app": "other", "grants": [{"right": "consume", "topic": "a*"}]})),
        (71, pack({"app": "other"})), (72, pack({})),
        (73, pack({"questions": [{"command": SEND, "topic": topic}, {"command": PULL, **both}]})),
        (TRANSACTION_COMMIT, pack({"writer": "writer", "batch_id": 1, "ids": [1], "digest": 7})),
        (TRANSACTION_ABORT, pack({"writer": "writer", "batch_id": 1})),
        (TRANSACTION_LIST, pack({"limit": 10, "after": ""})),
        (QUEUE_RANGES, pack({"topics": [{"topic": topic, "time_us": 5}]})),
        (HOLD_PUT, pack({"name": "a-hold", "position": 8, "note": "a note"})),
        (HOLD_DELETE, pack({"name": "a-hold"})),
        (HOLD_LIST, pack({})),
        (JOURNAL_CATALOG, pack({"position": 0, "after": "t1", "limit": 10})),
        (SCHEDULE_CANCEL, pack({"topic": topic, "id": "1:0"})),
        (SCHEDULE_CANCEL, pack({"topic": topic, "application_id": "order-7"})),
        (SCHEDULE_LIST, pack({"topic": topic, "since_us": 5, "until_us": 9, "after": "7"})),
        (SCHEDULE_HOURS, pack({"topic": topic, "limit": 10, "after": "7"})),
        (CHECKER_OFFER, pack({"groups": ["checked"]})),
        (TRANSACTION_PREPARE, transaction_body(topic, "checked", 1, batch, query="order-7")),
        (TRANSACTION_PREPARE, transaction_body("", "checked", 2, b"")),
        (TRANSACTION_SETTLE, struct.pack("<QIIQqIHBB", 99, 1, 0, 1, -1, 1, 0, 0, len(topic))
         + sizes(group) + struct.pack("<QQ", 0, 3) + names(topic, group)),
        (TRANSACTION_READ, struct.pack("<QQII", 99, 0, 0, 0)),
        (TRANSACTION_MOVE, pack({**here, "transaction": 99, "offset": 1})),
        (TRANSACTION_SHOW, pack({"transaction": 99})),
        (TRANSACTION_SHOW, pack({"producer": 7, "counter": 9})),
        (TRANSACTION_DECIDE, pack({"transaction": 99, "commit": True})),
        (TRANSACTION_DECIDE, pack({"producer": 7, "counter": 9, "commit": False})),
        (TRANSACTION_CHECK_AGAIN, pack({"transaction": 99})),
        (PRODUCER_GROUP_PUT, pack({"group": "put", "app": "shop", "attempts": 3})),
        (PRODUCER_GROUP_LIST, pack({"limit": 10, "after": ""})),
        (PRODUCER_GROUP_DELETE, pack({"group": "put"})),
        (98, pack({})), (99, pack({"name": "held", "subject": "a/b/0"})),
        (120, pack({"topics": [topic]})),
    ]  # fmt: skip
