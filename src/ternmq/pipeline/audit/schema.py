"""The tables of the audit, and what their columns mean.

A change of a table's columns raises its version.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ternmq.pipeline.tables.spec import INSTANT, VERSION, Column, TableSpec, unsigned

BUCKET_US: Final = 600_000_000
"""A window: ten minutes of born time, as producers count."""


def _whole(name: str, about: str) -> Column:
    return Column(name, pa.int64(), about, null=True)


_SUM: Final = (
    "sum of a hash of the id of each {} message, modulo 2^64: equal sets of messages have equal "
    "sums"
)
_BUCKET: Final = Column(
    "bucket",
    INSTANT,
    "start of the window of ten minutes in which the messages were sent, by their sender's clock. "
    "Scheduled messages count in this window in the tier `stored`. In the other tiers, they count "
    "in the window in which they are due",
)
_TIER: Final = Column(
    "tier",
    pa.string(),
    "`stored`: messages that producers sent and the broker stored; `group`: messages that a group "
    "received; `archive`: messages in the archive; `due`: scheduled messages, in the window in "
    "which they are due",
)
_TOPIC_NUMBER: Final = Column("topic_number", pa.int64(), "number of the topic")
_GROUP: Final = Column(
    "group", pa.string(), "name of the group; null, except in the tier `group`", null=True
)
_DAY: Final = Column("day", pa.date32(), "day of `bucket`, in UTC")

AUDIT: Final = TableSpec(
    name="audit",
    # Version 3 has `scheduled`, `cancelled`, `pending`, `gone`. Version 4 has `expired_dead` and
    # `expired_dropped`; before, `settled` and `passed` had these messages.
    version=4,
    columns=(
        _BUCKET,
        _TIER,
        Column("topic", pa.string(), "name of the topic; null if it is not known", null=True),
        _TOPIC_NUMBER,
        _GROUP,
        Column(
            "verdict",
            pa.string(),
            "`ok`, `open`, `late`, `unverified`, `expired`, `doubled`, `lost`: the worst one that "
            "applies",
        ),
        Column(
            "final",
            pa.bool_(),
            "true: no tier of the topic's window is `open`, and no group owes messages. The window "
            "is judged again only when there are new facts about it",
        ),
        _whole("producers", "number of producers"),
        _whole(
            "unverified",
            "number of producers whose counts do not prove the verdict; in the tier `due`, "
            "messages that may have been delivered before the audit began",
        ),
        _whole(
            "sent",
            "number of sent messages, from the producers' counts and the commits of transactions; "
            "null without counts and commits",
        ),
        _whole("stored", "number of stored messages, copies included"),
        _whole(
            "left_out",
            "messages that were not stored, because their application id was already stored",
        ),
        _whole(
            "given_up",
            "messages whose send ended without an answer, as producers report; null without counts",
        ),
        _whole(
            "lost",
            "messages that were sent, and are not stored or archived; in the tier `due`, are not "
            "delivered; in the tier `group`, messages that the group passed over without a reason",
        ),
        _whole("doubled", "messages that are there more than once"),
        _whole(
            "late",
            "messages that were stored, or in the tier `due` delivered, after the window was "
            "judged",
        ),
        _whole(
            "delivered",
            "messages that the group received; in the tier `due`, scheduled messages that were "
            "delivered to their queue",
        ),
        _whole("settled", "messages that ended as done or dead, without those that expired"),
        _whole(
            "passed",
            "messages that the group does not receive: excluded by its filter, stored before its "
            "start, skipped by an operator, or below a position that a bulk reader committed",
        ),
        _whole("expired", "messages that retention removed before the group received them"),
        _whole("expired_dead", "messages that expired, and became dead letters of the group"),
        _whole("expired_dropped", "messages that expired, and that the group drops"),
        _whole("archived", "rows of the archive, copies included"),
        _whole("scheduled", "scheduled messages that are due in the window"),
        _whole("cancelled", "scheduled messages that were cancelled"),
        _whole("pending", "scheduled messages that will still be delivered"),
        _whole("gone", "scheduled messages whose topic was deleted before they were due"),
        _whole(
            "sent_sum",
            f"{_SUM.format('sent')}. Null if the sequences of a producer's messages to the topic "
            "have gaps, and in the tier `stored` until the window is judged",
        ),
        _whole(
            "stored_sum",
            f"{_SUM.format('stored')}. In the tier `stored`, null until the window is judged",
        ),
        _whole("delivered_sum", _SUM.format("delivered")),
        _whole("settled_sum", _SUM.format("settled")),
        _whole("archived_sum", _SUM.format("archived")),
        _DAY,
        VERSION,
    ),
    partition_by=("day",),
    bounds=("bucket",),
)
"""One row for each window, topic and tier: ``stored`` (what producers sent and the broker stored),
``group`` (a row for each group), ``archive``, ``due``. ``*_sum``: sums of ids, as
``spans.id_sums``."""

FINDINGS: Final = TableSpec(
    name="audit_findings",
    version=2,
    columns=(
        _BUCKET,
        _TIER,
        Column(
            "topic", pa.string(), "name of the topic; null if it can be one of several", null=True
        ),
        _whole("topic_number", "number of the topic; null if it can be one of several"),
        _GROUP,
        Column(
            "kind",
            pa.string(),
            "`lost`, `doubled`, `late`, `expired`, `unverified`; in the tier `archive` also "
            "`damaged`: the archive has another message or another body at this offset",
        ),
        Column(
            "message_id",
            pa.string(),
            "id of the message; null for a producer, and for messages above the limit "
            "`audit.named`",
            null=True,
        ),
        unsigned("producer_id", "first half of the id", null=True),
        unsigned("sequence", "second half of the id", null=True),
        Column("queue", pa.int32(), "queue of the message", null=True),
        _whole(
            "offset",
            "offset of the message in the queue; for `doubled`, one row for each copy except the "
            "first",
        ),
        Column("count", pa.int64(), "number of messages that the row describes", null=True),
        Column("detail", pa.string(), "details of the finding", null=True),
        _DAY,
        VERSION,
    ),
    partition_by=("day",),
    bounds=("bucket",),
)
"""One row for each message or producer that is a reason for a verdict other than ``ok``."""

RUNS: Final = TableSpec(
    name="audit_runs",
    # Version 3 has `entry`, and the kinds of scheduled messages. Version 4 has the same columns,
    # and the kinds of messages that expired and of messages that a group may have passed over.
    version=4,
    columns=(
        Column("bucket", INSTANT, "start of the window", null=True),
        Column(
            "kind",
            pa.string(),
            "`stored`, `left_out`, `counts`, `given_up`, `prepared`, and of groups `delivered`, "
            "`settled`, `passed`, `dropped`, `expired`, `expired_dead`, `expired_dropped`, "
            "`parked`, `reached`, `watched`. Of scheduled messages: `scheduled` in the window of "
            "their born time; `owed`, `cancelled` and `fulfilled` in the window in which they are "
            "due",
        ),
        Column("topic", pa.string(), "name of the topic", null=True),
        _whole("topic_number", "number of the topic"),
        Column("group", pa.string(), "name of the group", null=True),
        Column("queue", pa.int32(), "number of the queue", null=True),
        _whole("start", "offset of the first message; of `scheduled`, `owed`, `cancelled`, entry"),
        _whole("stop", "offset, or entry, after the last message"),
        unsigned("producer_id", "first half of the id of the first message", null=True),
        unsigned("sequence", "second half of this id", null=True),
        unsigned("until", "of counts and similar kinds: one above the last sequence", null=True),
        _whole("sent", "of counts"),
        _whole("given_up", "of counts"),
        _whole("left_out", "of counts"),
        Column(
            "closed",
            pa.bool_(),
            "of counts; of stored messages: a transaction made them visible",
            null=True,
        ),
        Column("late", pa.bool_(), "stored after the window was judged", null=True),
        _whole("position", "position of the record"),
        _whole("entry", "of `fulfilled`: entry of the first message"),
        Column("hour", pa.string(), "hour of `bucket`, in UTC: `2026-11-21T12`"),
        VERSION,
    ),
    partition_by=("hour",),
    bounds=("bucket",),
)
"""The audit's memory of the journal, as runs of offsets and sequences; private to the audit."""
