"""The table of commands: number, name, layout of the body, and the rights that it needs.

Authorisation is a property of this table: ``Policy`` names the right that a command needs, and the
fields of its request for which it needs it. An entry cannot be made without a policy, so no command
is without one. Numbers are never reused.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

import msgspec

from ternmq.wire import control


class Command(enum.IntEnum):
    """Numbers of commands and pushes. They are never reused."""

    # The connection: HELLO and KEEP are msgpack, see ``control``; the others see ``bodies``.
    HELLO = 1
    PING = 2
    BYE = 3
    CANCEL = 4
    KEEP = 5
    # Messages: layouts of their own, see ``bodies``.
    SEND = 10
    PULL = 11
    SETTLE = 12
    EXTEND = 13
    READ = 14
    PREPARE = 15
    JOURNAL_READ = 16
    TRANSACTION_PREPARE = 17
    TRANSACTION_READ = 18
    TRANSACTION_SETTLE = 19
    # All others: msgpack, see ``control``.
    REPORT = 20
    NUMBERS_TAKE = 21
    TOPIC_CREATE = 30
    TOPIC_CHANGE = 31
    TOPIC_DELETE = 32
    TOPIC_LIST = 33
    GROUP_JOIN = 40
    GROUP_CHANGE = 41
    GROUP_DELETE = 42
    GROUP_LIST = 43
    GROUP_RESET = 44
    GROUP_SKIP = 45
    GROUP_COMMIT = 46
    GROUP_REPLAY = 47
    TRANSACTION_MOVE = 48
    GROUP_LEAVE = 49
    FIND = 50
    OFFSET_AT = 51
    FAILED_LIST = 52
    FAILED_RETRY = 53
    FAILED_DELETE = 54
    FAILED_REDRIVE = 55
    FAILED_QUERY = 56
    CLIENT_LIST = 60
    STATUS = 61
    CLOCK_ACCEPT = 62
    APP_PUT = 70
    APP_DELETE = 71
    APP_LIST = 72
    RIGHTS_CHECK = 73
    TRANSACTION_COMMIT = 80
    TRANSACTION_ABORT = 81
    TRANSACTION_LIST = 82
    TRANSACTION_DECIDE = 83
    TRANSACTION_SHOW = 84
    CHECKER_OFFER = 85
    PRODUCER_GROUP_PUT = 86
    PRODUCER_GROUP_LIST = 87
    PRODUCER_GROUP_DELETE = 88
    TRANSACTION_CHECK_AGAIN = 89
    QUEUE_RANGES = 90
    HOLD_PUT = 91
    HOLD_DELETE = 92
    HOLD_LIST = 93
    JOURNAL_CATALOG = 94
    SCHEDULE_CANCEL = 95
    SCHEDULE_LIST = 96
    SCHEDULE_HOURS = 97
    ALARM_LIST = 98
    ALARM_CLEAR = 99
    # Pushes: sent by the broker without a request.
    DRAIN = 100
    TOPIC_CHANGED = 101
    GROUP_CHANGED = 102
    TRANSACTION_CHECK = 103
    CLOCK_MOVED = 104
    QUEUES_ASSIGNED = 105
    # Between the brokers of a broker group, on connections of their own; see ``STREAM``.
    FOLLOW = 110
    BYTES = 112
    MARKS = 113
    ACK = 114
    RESIGN = 116
    SEGMENT_READ = 117
    # Routes: which brokers there are, and who leads; the second is a push.
    ROUTES = 120
    ROUTES_CHANGED = 121
    # A push to readers, of a broker that follows.
    BEHIND = 122


class Right(enum.Enum):
    """A right that a grant can give an app on topics and groups."""

    PRODUCE = "produce"
    CONSUME = "consume"
    MANAGE = "manage"
    AUDIT = "audit"
    """Read the whole journal, and hold it; only for the broker as a whole."""


class Scope(enum.Enum):
    """The part of a request for which a right is needed."""

    NOTHING = "nothing"
    """No right is needed: every app may use the command after HELLO."""
    TOPIC = "topic"
    """The field ``topic``."""
    TOPICS = "topics"
    """Every topic that the field ``topics`` names, each as ``TOPIC``."""
    GROUP = "group"
    """The fields ``topic`` and ``group``."""
    ANY_TOPIC = "any topic"
    """No topic: a grant for one topic, whichever it is, is enough."""
    TRANSACTION = "transaction"
    """Each topic that rows of the transaction are for; if it has none, any topic."""
    BROKER = "broker"
    """The broker as a whole: a grant for every topic and group."""


@dataclass(slots=True, frozen=True)
class Policy:
    """The apps that may use a command: those with one of ``rights`` for what ``scope`` names."""

    scope: Scope
    rights: tuple[Right, ...] = ()
    operators: bool = False
    """An app that may manage everything may use it for what belongs to other apps."""

    def __post_init__(self) -> None:
        if (self.scope is Scope.NOTHING) != (not self.rights):
            raise ValueError("a policy names rights exactly when its scope is something")


@dataclass(slots=True, frozen=True)
class Entry:
    """A row of the table; ``request`` and ``answer`` are None for bodies of ``wire.bodies``."""

    policy: Policy
    request: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None


class Sender(enum.Enum):
    """The side of a stream that sends a frame."""

    FOLLOWER = "follower"
    PRIMARY = "primary"
    EITHER = "either"


@dataclass(slots=True, frozen=True)
class StreamEntry:
    """A row of ``STREAM``; ``body`` and ``answer`` are None for bodies of ``wire.bodies``."""

    sender: Sender
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None
    """Of FOLLOW. SEGMENT_READ is answered as well; no other one is."""


_ANYBODY: Final = Policy(Scope.NOTHING)
_PRODUCE: Final = Policy(Scope.TOPIC, (Right.PRODUCE,))
_OFFER: Final = Policy(Scope.ANY_TOPIC, (Right.PRODUCE,))
_DECIDE: Final = Policy(Scope.TRANSACTION, (Right.PRODUCE,))
_CANCEL: Final = Policy(Scope.TOPIC, (Right.PRODUCE,), operators=True)
_RULE: Final = Policy(Scope.TRANSACTION, (Right.PRODUCE,), operators=True)
_CONSUME: Final = Policy(Scope.GROUP, (Right.CONSUME,))
_READ: Final = Policy(Scope.TOPIC, (Right.CONSUME,))
_MANAGE: Final = Policy(Scope.TOPIC, (Right.MANAGE,))
_MANAGE_GROUP: Final = Policy(Scope.GROUP, (Right.MANAGE,))
_EITHER: Final = Policy(Scope.GROUP, (Right.CONSUME, Right.MANAGE))
_EITHER_TOPIC: Final = Policy(Scope.TOPIC, (Right.CONSUME, Right.MANAGE))
_ADMIN: Final = Policy(Scope.BROKER, (Right.MANAGE,))
_AUDIT: Final = Policy(Scope.BROKER, (Right.AUDIT,))
_HOLD: Final = Policy(Scope.BROKER, (Right.AUDIT, Right.MANAGE))

TABLE: Final[dict[Command, Entry]] = {
    Command.HELLO: Entry(_ANYBODY, control.Hello, control.Welcome),
    Command.PING: Entry(_ANYBODY),
    Command.BYE: Entry(_ANYBODY),
    Command.CANCEL: Entry(_ANYBODY),
    Command.KEEP: Entry(_ANYBODY, control.Keep, control.Nothing),
    Command.SEND: Entry(_PRODUCE),
    Command.PULL: Entry(_CONSUME),
    Command.SETTLE: Entry(_CONSUME),
    Command.EXTEND: Entry(_CONSUME),
    Command.READ: Entry(_READ),
    Command.PREPARE: Entry(_PRODUCE),
    Command.JOURNAL_READ: Entry(_AUDIT),
    Command.TRANSACTION_PREPARE: Entry(_PRODUCE),
    Command.TRANSACTION_READ: Entry(_DECIDE),
    Command.TRANSACTION_SETTLE: Entry(_CONSUME),
    Command.REPORT: Entry(_PRODUCE, control.Report, control.Nothing),
    Command.NUMBERS_TAKE: Entry(_PRODUCE, control.NumbersTake, control.NumbersTaken),
    Command.TOPIC_CREATE: Entry(_MANAGE, control.TopicCreate, control.Nothing),
    Command.TOPIC_CHANGE: Entry(_MANAGE, control.TopicChange, control.Nothing),
    Command.TOPIC_DELETE: Entry(_MANAGE, control.TopicDelete, control.Nothing),
    Command.TOPIC_LIST: Entry(_ANYBODY, control.TopicList, control.Topics),
    Command.GROUP_JOIN: Entry(_EITHER, control.GroupJoin, control.GroupJoined),
    Command.GROUP_CHANGE: Entry(_MANAGE_GROUP, control.GroupChange, control.Nothing),
    Command.GROUP_DELETE: Entry(_MANAGE_GROUP, control.GroupDelete, control.Nothing),
    Command.GROUP_LIST: Entry(_ANYBODY, control.GroupList, control.Groups),
    Command.GROUP_RESET: Entry(_MANAGE_GROUP, control.GroupReset, control.ResetDone),
    Command.GROUP_SKIP: Entry(_MANAGE_GROUP, control.GroupSkip, control.Nothing),
    Command.GROUP_COMMIT: Entry(_CONSUME, control.GroupCommit, control.GroupCommitted),
    Command.GROUP_REPLAY: Entry(_MANAGE_GROUP, control.GroupReplay, control.GroupReplayed),
    Command.TRANSACTION_MOVE: Entry(_CONSUME, control.TransactionMove, control.Nothing),
    Command.GROUP_LEAVE: Entry(_EITHER, control.GroupLeave, control.Nothing),
    Command.FIND: Entry(_READ, control.Find, control.FoundPage),
    Command.OFFSET_AT: Entry(_EITHER_TOPIC, control.OffsetAt, control.OffsetFound),
    Command.FAILED_LIST: Entry(_EITHER, control.FailedList, control.FailedPage),
    Command.FAILED_RETRY: Entry(_MANAGE_GROUP, control.FailedRetry, control.FailedDone),
    Command.FAILED_DELETE: Entry(_MANAGE_GROUP, control.FailedDelete, control.FailedDone),
    Command.FAILED_REDRIVE: Entry(_MANAGE_GROUP, control.FailedRedrive, control.FailedRedriven),
    Command.FAILED_QUERY: Entry(_EITHER, control.FailedQuery, control.FailedFound),
    Command.CLIENT_LIST: Entry(_ADMIN, control.ClientList, control.Clients),
    Command.STATUS: Entry(_ANYBODY, control.StatusAsk, control.Status),
    Command.CLOCK_ACCEPT: Entry(_ADMIN, control.ClockAccept, control.ClockAccepted),
    Command.APP_PUT: Entry(_ADMIN, control.AppPut, control.AppToken),
    Command.APP_DELETE: Entry(_ADMIN, control.AppDelete, control.Nothing),
    Command.APP_LIST: Entry(_ADMIN, control.AppList, control.Apps),
    Command.RIGHTS_CHECK: Entry(_ANYBODY, control.RightsCheck, control.RightsChecked),
    Command.TRANSACTION_COMMIT: Entry(_DECIDE, control.TransactionCommit, control.TransactionDone),
    Command.TRANSACTION_ABORT: Entry(_RULE, control.TransactionAbort, control.TransactionDone),
    Command.TRANSACTION_LIST: Entry(_ANYBODY, control.TransactionList, control.Transactions),
    Command.TRANSACTION_DECIDE: Entry(_RULE, control.TransactionDecide, control.TransactionDone),
    Command.TRANSACTION_SHOW: Entry(_RULE, control.TransactionShow, control.CheckedTransaction),
    Command.CHECKER_OFFER: Entry(_OFFER, control.CheckerOffer, control.Nothing),
    Command.PRODUCER_GROUP_PUT: Entry(_ADMIN, control.ProducerGroupPut, control.Nothing),
    Command.PRODUCER_GROUP_LIST: Entry(_ADMIN, control.ProducerGroupList, control.ProducerGroups),
    Command.PRODUCER_GROUP_DELETE: Entry(_ADMIN, control.ProducerGroupDelete, control.Nothing),
    Command.TRANSACTION_CHECK_AGAIN: Entry(_ADMIN, control.TransactionCheckAgain, control.Nothing),
    Command.QUEUE_RANGES: Entry(
        Policy(Scope.TOPICS, (Right.CONSUME,)), control.QueueRanges, control.RangesFound
    ),
    Command.HOLD_PUT: Entry(_HOLD, control.HoldPut, control.HoldPlaced),
    Command.HOLD_DELETE: Entry(_HOLD, control.HoldDelete, control.Nothing),
    Command.HOLD_LIST: Entry(_HOLD, control.HoldList, control.Holds),
    Command.JOURNAL_CATALOG: Entry(_AUDIT, control.JournalCatalog, control.JournalNames),
    Command.SCHEDULE_CANCEL: Entry(_CANCEL, control.ScheduleCancel, control.Nothing),
    Command.SCHEDULE_LIST: Entry(_READ, control.ScheduleList, control.ScheduledPage),
    Command.SCHEDULE_HOURS: Entry(_READ, control.ScheduleHours, control.ScheduledHours),
    Command.ALARM_LIST: Entry(_ADMIN, control.AlarmList, control.Alarms),
    Command.ALARM_CLEAR: Entry(_ADMIN, control.AlarmClear, control.AlarmCleared),
    Command.ROUTES: Entry(_ANYBODY, control.RoutesAsk, control.Routes),
}
"""Every command that a client can send. TOPIC_LIST and GROUP_LIST list what the app has a right on,
TRANSACTION_LIST what it owns; an app that may manage everything gets all transactions."""

PUSHES: Final[dict[Command, type[msgspec.Struct]]] = {
    Command.DRAIN: control.Drain,
    Command.TOPIC_CHANGED: control.TopicChanged,
    Command.GROUP_CHANGED: control.GroupChanged,
    Command.TRANSACTION_CHECK: control.TransactionCheck,
    Command.CLOCK_MOVED: control.ClockMoved,
    Command.QUEUES_ASSIGNED: control.QueuesAssigned,
    Command.ROUTES_CHANGED: control.RoutesChanged,
    Command.BEHIND: control.Behind,
}

STREAM: Final[dict[Command, StreamEntry]] = {
    Command.FOLLOW: StreamEntry(Sender.FOLLOWER, control.Follow, control.Followed),
    Command.BYTES: StreamEntry(Sender.PRIMARY),
    Command.MARKS: StreamEntry(Sender.PRIMARY),
    Command.ACK: StreamEntry(Sender.FOLLOWER),
    Command.RESIGN: StreamEntry(Sender.PRIMARY, control.Resign),
    Command.SEGMENT_READ: StreamEntry(Sender.EITHER, control.SegmentRead),
}
"""Every frame between two brokers of a broker group. FOLLOW and SEGMENT_READ take the place of
HELLO, as the first frame of a connection, and need the token of the cluster, no right of an app;
after SEGMENT_READ there is only its answer. The others are sent only on a connection whose FOLLOW
was answered, where no command of ``TABLE`` is allowed; to clients
all of them are unknown."""

ONE_WAY_COMMANDS: Final = frozenset(
    {Command.SEND, Command.SETTLE, Command.EXTEND, Command.REPORT, Command.CANCEL, Command.BYE}
)
"""Commands that may be sent as ONE_WAY, without an answer; a failure of one is not reported."""
