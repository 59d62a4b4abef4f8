"""Settings of topics, groups and retry policies; and the limits of the broker.

These are frozen structs, stored in CONFIG records as msgpack. A new field needs a default, so that
older records can still be read; fields are never renamed or reused.
"""

from __future__ import annotations

import enum
import re
from typing import Final

import msgspec

from ternmq.model.assignments import Assignment, check_assignments
from ternmq.model.errors import InvalidName, InvalidRequest
from ternmq.model.offline import check_offline
from ternmq.model.printing import quoted
from ternmq.model.types import DAY_US, HOUR_US, MINUTE_US, SECOND_US

LONGEST_US: Final = 36_525 * DAY_US
"""Longest duration of any setting: a hundred years."""
MAX_FACTOR: Final = 1000.0
MAX_ATTEMPTS: Final = 65_000
MAX_QUEUES: Final = 4096
MAX_LEVELS: Final = 8
MAX_WINDOW: Final = 60_000
MAX_CONCURRENCY: Final = 1_000_000
LEAST_LEASE_US: Final = 1000
"""Shortest lease that a broker accepts; the client library requires more, see its ``validation``.
"""
MAX_LEASE_US: Final = DAY_US
LEAST_CHECK_US: Final = SECOND_US
MAX_CHECK_US: Final = HOUR_US
"""Shortest and longest time from the opening of a transaction to the first question about it."""
_NOT_IN_TAGS: Final = re.compile(r"[\s|,*]")
MAX_QUERY_BYTES: Final = 255
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,127}\Z")
BROADCAST_GROUP: Final = "$broadcast"
"""The group that grants name for broadcast instances, whatever their names."""
INSTANCE_GROUPS: Final = ("$b.", "$b-")
"""How the names of the groups of broadcast instances begin: of those with a name, and of those that
have the number of a session. No user can give such a name."""
MAX_INSTANCE: Final = 120
"""Longest name of a broadcast instance."""


def check_name(name: object, what: str = "a name") -> str:
    """Return the name if it is allowed.

    Raises:
        InvalidName: other characters, wrong length, or one or two dots alone.
    """
    if type(name) is not str:
        raise InvalidName(f"{what} is a str, not {type(name).__name__}")
    if _NAME.match(name) is None or name in {".", ".."}:
        raise InvalidName(f"not a name: {quoted(name)}")
    return name


def check_instance(name: object) -> str:
    """Return the name of a broadcast instance if it is allowed: as other names, at most 120 long.

    Raises:
        InvalidName: other characters, or wrong length.
    """
    given = check_name(name, "the name of an instance")
    if len(given) > MAX_INSTANCE:
        raise InvalidName(
            f"the name of an instance has at most {MAX_INSTANCE} characters: {quoted(given)}"
        )
    return given


def instance_group(instance: str, session: int = 0) -> str:
    """Return the group of a broadcast instance; of one without a name, that of its session."""
    return f"$b.{instance}" if instance else f"$b-{session}"


def check_group(name: object, what: str = "group") -> str:
    """Return the name of an existing group if there can be one: also that of an instance.

    Raises:
        InvalidName: There can be no such group.
    """
    if type(name) is str and name.startswith(INSTANCE_GROUPS):
        check_name(name[len(INSTANCE_GROUPS[0]) :], what)
        return name
    return check_name(name, what)


def check_failing(name: object, what: str = "group") -> str:
    """Return the name of a group that can have retries, dead letters and replays: no instance.

    Raises:
        InvalidName: There can be no such group.
        InvalidRequest: It is a broadcast instance.
    """
    found = check_group(name, what)
    if found.startswith(INSTANCE_GROUPS):
        raise InvalidRequest(
            f"{found!r} is a broadcast instance: instances have no retries, no dead letters and no "
            "replay"
        )
    return found


def check_query_id(query_id: str) -> str:
    """Return the query id of a transaction if it is allowed.

    Raises:
        InvalidRequest: it is longer than 255 bytes, or has control characters.
    """
    size = len(query_id.encode(errors="replace"))
    if size > MAX_QUERY_BYTES:
        raise InvalidRequest(f"the query id has {size} bytes: 0 to {MAX_QUERY_BYTES} are allowed")
    if _CONTROL.search(query_id):
        raise InvalidRequest(f"the query id has control characters: {query_id!r}")
    return query_id


def check_tag(tag: str) -> str:
    """Return the tag if a filter can name it.

    Raises:
        InvalidRequest: it contains white space, ``|``, ``,`` or ``*``.
    """
    found = _NOT_IN_TAGS.search(tag)
    if found is not None:
        raise InvalidRequest(
            f"not a tag: {quoted(tag, 80)} has {found.group()!r} in it, so no filter can name it; "
            "a message has one tag, a word without white space, '|', ',' and '*'"
        )
    return tag


class Durability(enum.Enum):
    """When a send may be answered."""

    NORMAL = "normal"
    """When it is synced on the primary's disk, and on the replica's file system if there is one."""
    STRICT = "strict"
    """When there are two copies; a send is refused if they cannot be made."""
    FAST = "fast"
    """When it is written; it is synced within 100 ms, and delivered only when durable."""


class Mode(enum.Enum):
    """How a group consumes a topic."""

    SHARED = "shared"
    """Messages go to any consumer, in no order."""
    ORDERED = "ordered"
    """The messages of each ordering key are delivered one after another."""
    QUEUE_LOCK = "queue_lock"
    """The messages of each queue are delivered one after another, to one consumer at a time."""
    OWNED = "owned"
    """The same, and each queue belongs to one member of the group, the only one that gets its
    messages."""
    EXCLUSIVE = "exclusive"
    """The same, and all queues belong to one member: the one that joined first."""
    BROADCAST = "broadcast"
    """The group of one instance of an application: every instance gets every message. Messages that
    fail are not tried again."""

    @property
    def keeps_order(self) -> bool:
        """Whether later messages wait for one that failed."""
        return self is not Mode.SHARED and self is not Mode.BROADCAST

    @property
    def locks_queues(self) -> bool:
        """Whether a queue has at most one open lease, and its messages wait for one another."""
        return self in {Mode.QUEUE_LOCK, Mode.OWNED, Mode.EXCLUSIVE}

    @property
    def assigns_queues(self) -> bool:
        """Whether each queue belongs to one member of the group."""
        return self in {Mode.OWNED, Mode.EXCLUSIVE}


class Start(enum.Enum):
    """Where a new group begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Exhausted(enum.Enum):
    """The state of a message after its last failed attempt."""

    DEAD_LETTER = "dead-letter"
    HOLD = "hold"
    """The message blocks its ordering key, or its queue, until an operator retries or deletes it
    (in groups of mode shared: it becomes a dead letter)."""


class Expired(enum.Enum):
    """What becomes of a message that expires before a group received it."""

    DEAD_LETTER = "dead-letter"
    DROP = "drop"
    """It is done for the group, and counted."""


class TopicSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a topic."""

    name: str
    queues: int = 1
    """Number of queues; of a topic with levels, that of each level."""
    ordered: bool = False
    durability: Durability = Durability.NORMAL
    retention_us: int = 7 * DAY_US
    keep_until_consumed: bool = True
    """Messages are kept beyond the retention until every group of the topic has finished them."""
    ignore_ordering_keys: bool = False
    """Only for topics that are not ordered: messages with an ordering key are stored with it, but
    their order is not kept. False: they are refused."""
    levels: int = 1
    """Number of levels of priority; 1: messages have no priority. It never changes. Queue ``i`` of
    level ``p`` has the number ``i * levels + p``."""

    @property
    def queue_count(self) -> int:
        """Number of queues of all levels."""
        return self.queues * self.levels

    expires_us: int = 0
    """Time after which a message expires, counted from when it was stored: from then on, it is
    neither delivered for the first time nor retried. 0: no limit."""
    broadcast: bool = False
    """Its consumers are broadcast instances, each of which gets every message; it has no other
    groups. It never changes."""

    def check(self) -> TopicSpec:
        """Return self, or raise InvalidRequest naming the field."""
        check_name(self.name)
        if not 1 <= self.queues <= MAX_QUEUES:
            raise InvalidRequest(f"queues must be 1 to {MAX_QUEUES}, not {self.queues}")
        if not 1 <= self.levels <= MAX_LEVELS:
            raise InvalidRequest(f"levels must be 1 to {MAX_LEVELS}, not {self.levels}")
        if self.queue_count > MAX_QUEUES:
            raise InvalidRequest(
                f"queues times levels must be at most {MAX_QUEUES}, not {self.queues} x "
                f"{self.levels}"
            )
        if self.levels > 1 and self.ordered:
            raise InvalidRequest(
                "an ordered topic has no levels, because messages of a higher level would overtake "
                "others of their ordering key: use one topic for order, another for priority"
            )
        if not 0 < self.retention_us <= LONGEST_US:
            raise InvalidRequest(
                "retention must be more than 0 seconds and at most a hundred years, not "
                f"{_seconds(self.retention_us)}"
            )
        if not 0 <= self.expires_us <= LONGEST_US:
            raise InvalidRequest(
                "expires_after must be at least 0 seconds (0: never) and at most a hundred years, "
                f"not {_seconds(self.expires_us)}"
            )
        if self.ordered and self.ignore_ordering_keys:
            raise InvalidRequest("ignore_ordering_keys is for topics that are not ordered")
        return self


def _seconds(us: int) -> str:
    return f"{us / SECOND_US:g} s"


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Delays and number of the retries of a failed row."""

    enabled: bool = True
    """Off: a row fails for good at its first failure."""
    first_us: int = SECOND_US
    factor: float = 2.0
    cap_us: int = 5 * MINUTE_US
    jitter: float = 0.2
    """Fraction of the delay by which it varies at random, up and down."""
    attempts: int = 16
    exhausted: Exhausted = Exhausted.DEAD_LETTER
    expires_us: int = 0
    """Time after which a row is no longer retried, counted from when it was stored: if the next
    attempt would be later, the failure is the last one. 0: no limit."""

    def check(self) -> RetryPolicy:
        """Return self, or raise InvalidRequest naming the field."""
        if not 0 <= self.first_us <= self.cap_us <= LONGEST_US:
            raise InvalidRequest(
                f"first must be 0 or more, and at most cap, not {_seconds(self.first_us)} with a "
                f"cap of {_seconds(self.cap_us)}"
            )
        if not 1.0 <= self.factor <= MAX_FACTOR:
            raise InvalidRequest(f"factor must be 1 to {MAX_FACTOR:g}, not {self.factor:g}")
        if not 0.0 <= self.jitter < 1.0:
            raise InvalidRequest(f"jitter must be from 0 to below 1, not {self.jitter:g}")
        if not 1 <= self.attempts <= MAX_ATTEMPTS:
            raise InvalidRequest(f"attempts must be 1 to {MAX_ATTEMPTS}, not {self.attempts}")
        if not 0 <= self.expires_us <= LONGEST_US:
            raise InvalidRequest(
                "expires must be at least 0 seconds (0: no limit) and at most a hundred years, not "
                f"{_seconds(self.expires_us)}"
            )
        return self


class Instance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A broadcast instance of a topic: which client it is."""

    named: bool
    """It has a name, so its place is kept for a time after it left."""
    session: int = 0
    """Session of its client; 0: none."""
    seen_us: int = 0
    """When its client was last known to have a session (broker time), at most a day late."""


class SubscriptionSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a consumer group on a topic."""

    mode: Mode = Mode.SHARED
    tags: str = ""
    """Tag filter, such as ``paid || refunded``; empty: every message."""
    start: Start = Start.EARLIEST
    retry: RetryPolicy = RetryPolicy()
    lease_us: int = 30 * SECOND_US
    window: int = 10_000
    """Most messages of a queue that are leased at one time."""
    paused: bool = False
    filter: str = ""
    """Header filter, such as ``region = 'eu' AND amount >= 100``; empty: every message. Messages
    have to pass both ``tags`` and ``filter``."""
    expired: Expired = Expired.DEAD_LETTER
    """What becomes of messages that expire before their first delivery or a retry."""
    concurrency: int = 0
    """Most messages that are leased to one session at one time, in all queues; 0: no limit."""
    offline: tuple[str, ...] = ()
    """Clients that are switched off: their pulls get nothing; see ``model.offline``."""
    assign: tuple[Assignment, ...] = ()
    """For mode owned: which members own which queues. Of several entries for a queue, the first
    that matches a member counts; a queue that no entry gives to a member waits. Empty: the queues
    are divided equally among the members."""
    instance: Instance | None = None
    """Of mode broadcast: the instance; None with all other modes."""

    @property
    def policy(self) -> RetryPolicy:
        """The effective retry policy: ``HOLD`` applies only to groups that keep an order."""
        if self.retry.exhausted is Exhausted.HOLD and not self.mode.keeps_order:
            return msgspec.structs.replace(self.retry, exhausted=Exhausted.DEAD_LETTER)
        return self.retry

    def check(self) -> SubscriptionSpec:
        """Return self, or raise InvalidRequest naming the field."""
        self.retry.check()
        if not LEAST_LEASE_US <= self.lease_us <= MAX_LEASE_US:
            raise InvalidRequest(
                f"lease must be at least 1 ms and at most a day, not {_seconds(self.lease_us)}"
            )
        if not 1 <= self.window <= MAX_WINDOW:
            raise InvalidRequest(f"window must be 1 to {MAX_WINDOW}, not {self.window}")
        if not 0 <= self.concurrency <= MAX_CONCURRENCY:
            raise InvalidRequest(
                f"concurrency must be 0 (no limit) to {MAX_CONCURRENCY}, not {self.concurrency}"
            )
        check_offline(self.offline)
        check_assignments(self.assign)
        if self.assign and self.mode is not Mode.OWNED:
            raise InvalidRequest(
                f"assign is for groups of mode owned: this one has mode {self.mode.value}"
            )
        return self


class Unanswered(enum.Enum):
    """What happens to a transaction that no checker decides."""

    PARK = "park"
    """It stays undecided, with an alarm, until somebody decides it."""
    ROLL_BACK = "roll-back"
    COMMIT = "commit"


class ProducerGroupSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a producer group: how its undecided transactions are checked.

    A change holds for transactions that are open already, from their next question on.
    """

    name: str
    first_us: int = MINUTE_US
    """Time from the opening of a transaction to the first question about it."""
    factor: float = 1.5
    """How much longer each later time between two questions is."""
    cap_us: int = 10 * MINUTE_US
    """Longest time between two questions."""
    jitter: float = 0.1
    """Fraction of each time by which it varies at random, up and down."""
    attempts: int = 15
    """Number of questions."""
    give_up_us: int = DAY_US
    """Time from the opening after which ``then`` happens, however often was asked."""
    then: Unanswered = Unanswered.PARK
    """What happens after the last question, or after ``give_up_us``."""
    without_checker: bool = False
    """Whether transactions may be opened while no client offers a checker."""

    def check(self) -> ProducerGroupSpec:
        """Return self, or raise InvalidRequest naming the field."""
        check_name(self.name)
        if not LEAST_CHECK_US <= self.first_us <= MAX_CHECK_US:
            raise InvalidRequest(
                "first (the time from the opening of a transaction to the first question) must be "
                f"1 s to 1 h, not {_seconds(self.first_us)}"
            )
        if not self.first_us <= self.cap_us <= DAY_US:
            raise InvalidRequest(
                "cap (the longest pause between two questions) must be at least first "
                f"({_seconds(self.first_us)}), and at most a day, not {_seconds(self.cap_us)}"
            )
        if not 1.0 <= self.factor <= MAX_FACTOR:
            raise InvalidRequest(f"factor must be 1 to {MAX_FACTOR:g}, not {self.factor:g}")
        if not 0.0 <= self.jitter < 1.0:
            raise InvalidRequest(f"jitter must be from 0 to below 1, not {self.jitter:g}")
        if not 1 <= self.attempts <= MAX_ATTEMPTS:
            raise InvalidRequest(f"attempts must be 1 to {MAX_ATTEMPTS}, not {self.attempts}")
        if not self.first_us <= self.give_up_us <= LONGEST_US:
            raise InvalidRequest(
                "give_up (the time from the opening of a transaction until no more questions are "
                f"asked) must be at least first ({_seconds(self.first_us)}), and at most a hundred "
                f"years, not {_seconds(self.give_up_us)}"
            )
        return self


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the broker's memory of topics, groups and so on, in number and in time."""

    topics: int = 100_000
    groups: int = 10_000
    group_queues: int = 65_536
    """Groups of one topic times its queues: each group has state for each queue."""
    instances: int = 10_000
    """Broadcast instances of all topics; each is a group of one topic."""
    instance_kept_us: int = 7 * DAY_US
    """How long the place of a broadcast instance with a name is kept after it left."""
    apps: int = 10_000
    holds: int = 64
    gone_names: int = 50_000
    """Names of topics, groups and sessions that are gone but may still be in the journal."""
    sessions: int = 20_000
    session_grace_us: int = 10 * SECOND_US
    producers: int = 200_000
    producer_idle_us: int = 10 * MINUTE_US
    dedup_window_us: int = 10 * MINUTE_US
    dedup_batches: int = 1_000_000
    """Batches that deduplication remembers; each application id counts as one batch."""
    send_timeout_us: int = 10 * SECOND_US
    """Longest time for which a client repeats a send; deduplication remembers at least twice as
    long."""
    intervals: int = 10_000
    """Runs of rows that one (group, queue) may have open."""
    parked: int = 10_000
    """Rows of one ordered (group, queue) that may wait behind busy keys."""
    replay_rows: int = 1_000_000
    """Rows of one (group, queue) that may wait for their redelivery by a replay."""
    replay_keyed_rows: int = 100_000
    """``replay_rows`` for ordered groups, where each waiting row has an entry in its key's line."""
    failures: int = 5_000_000
    """Rows of one (group, queue) that wait for a retry or are dead."""
    dead_letter_us: int = 30 * DAY_US
    transactions: int = 1_000
    """Transactions that are undecided."""
    transaction_batches: int = 16_384
    """Prepared batches of one transaction."""
    prepared_batches: int = 131_072
    """Prepared batches of all undecided transactions."""
    prepared_bytes: int = 16 * 1024**3
    """Bytes of all prepared batches in the journal."""
    transaction_us: int = HOUR_US
    """Time after its first prepared batch at which an undecided transaction is rolled back."""
    open_transactions: int = 20_000
    """Transactions with check-back that are undecided, parked ones included."""
    transaction_settles: int = 10_000
    """Runs of rows that one transaction may settle; a move of a cursor counts as a run, and rows
    that fail count as ``checked.weight`` says."""
    prepared_settles: int = 500_000
    """The same of all undecided transactions."""
    transaction_due_rows: int = 10_000
    """Rows with due times that one transaction may prepare."""
    producer_groups: int = 10_000
    """Names of producer groups."""
    writers: int = 10_000
    """Names of writers."""
    writer_idle_us: int = 30 * DAY_US
    """Idle time after which a writer is forgotten, with all of its decisions."""
    decisions: int = 1_024
    """Decisions that are remembered of one writer."""
    decision_us: int = DAY_US
    """Decisions older than the writer's newest by more than this are forgotten, except the highest
    committed one."""
    scheduled_rows: int = 10_000_000
    """Messages that are scheduled and not due yet; each takes some 35 bytes of memory."""
    pull_messages: int = 10_000
    pull_bytes: int = 8 * 1024 * 1024
    waiters: int = 100_000
    """Parked pulls and reads."""
    batch_bytes: int = 17 * 1024 * 1024
    filter_scan_rows: int = 10_000
    filter_cursor_us: int = SECOND_US
