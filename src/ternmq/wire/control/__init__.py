"""Requests and answers that are rare enough to be readable: msgpack maps, one struct each.

Unknown fields are ignored, missing ones have the defaults that stand here, so that either side may
be older. Times are µs in broker time, durations µs, unless a name says otherwise. Names of topics
and groups are checked by the broker. The tables in ``docs/protocol/control.md`` are made of these
structs (``python -m tests.unit.wire.control_tables``). One file each for what they are about.

Numbers, lists and texts of requests are bounded here, so that no handler meets one that no field
of a record could hold. A bound is never lowered.
"""

from __future__ import annotations

from ternmq.wire.control.apps import (
    AppDelete,
    AppInfo,
    AppList,
    AppPut,
    Apps,
    AppToken,
    GrantInfo,
)
from ternmq.wire.control.coding import Body, Nothing, decode, decode_answer, encode
from ternmq.wire.control.connection import (
    NAME,
    ClientInfo,
    ClientList,
    Clients,
    Drain,
    Hello,
    Keep,
    KeptLease,
    Status,
    StatusAsk,
    Welcome,
)
from ternmq.wire.control.groups import (
    GroupChange,
    GroupChanged,
    GroupDelete,
    GroupInfo,
    GroupJoin,
    GroupJoined,
    GroupList,
    GroupQueueInfo,
    GroupReset,
    Groups,
    GroupSkip,
    ResetDone,
    ResetQueue,
)
from ternmq.wire.control.lookup import (
    FailedDelete,
    FailedDone,
    FailedList,
    FailedMessage,
    FailedPage,
    FailedRetry,
    FailureInfo,
    Find,
    FoundMessage,
    FoundPage,
    OffsetAt,
    OffsetFound,
)
from ternmq.wire.control.topics import (
    QueueInfo,
    Report,
    ReportEntry,
    TopicChange,
    TopicChanged,
    TopicCreate,
    TopicDelete,
    TopicInfo,
    TopicList,
    Topics,
)

__all__ = [
    "AppDelete",
    "AppInfo",
    "AppList",
    "AppPut",
    "AppToken",
    "Apps",
    "Body",
    "ClientInfo",
    "ClientList",
    "Clients",
    "Drain",
    "FailedDelete",
    "FailedDone",
    "FailedList",
    "FailedMessage",
    "FailedPage",
    "FailedRetry",
    "FailureInfo",
    "Find",
    "FoundMessage",
    "FoundPage",
    "GrantInfo",
    "GroupChange",
    "GroupChanged",
    "GroupDelete",
    "GroupInfo",
    "GroupJoin",
    "GroupJoined",
    "GroupList",
    "GroupQueueInfo",
    "GroupReset",
    "GroupSkip",
    "Groups",
    "Hello",
    "Keep",
    "KeptLease",
    "NAME",
    "Nothing",
    "OffsetAt",
    "OffsetFound",
    "QueueInfo",
    "Report",
    "ReportEntry",
    "ResetDone",
    "ResetQueue",
    "Status",
    "StatusAsk",
    "TopicChange",
    "TopicChanged",
    "TopicCreate",
    "TopicDelete",
    "TopicInfo",
    "TopicList",
    "Topics",
    "Welcome",
    "decode",
    "decode_answer",
    "encode",
]
