"""What users set: topics, subscriptions, retry policies; and the limits of the broker.

These are frozen structs that travel in CONFIG records as msgpack. A field that is added gets a
default, so that older records still read; fields are never renamed or reused.
"""

from __future__ import annotations

import enum
import re
from typing import Final

import msgspec

from ternmq.model.errors import InvalidName, InvalidRequest
from ternmq.model.types import DAY_US, HOUR_US, MINUTE_US, SECOND_US

LONGEST_US: Final = 36_525 * DAY_US
"""A hundred years: no time that is set is longer."""
MAX_FACTOR: Final = 1000.0
MAX_ATTEMPTS: Final = 65_000
MAX_WINDOW: Final = 60_000
LEAST_LEASE_US: Final = 1000
"""Less is refused by a broker; the client library asks for more, see its ``validation``."""
MAX_LEASE_US: Final = DAY_US
_NOT_IN_TAGS: Final = re.compile(r"[\s|,*]")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,127}\Z")


def check_name(name: str, what: str = "a name") -> str:
    """Return the name if it is allowed.

    Raises:
        InvalidName: other characters, wrong length, or only dots.
    """
    if type(name) is not str:
        raise InvalidName(f"{what} is a str, not {type(name).__name__}")
    if _NAME.match(name) is None or name in {".", ".."}:
        raise InvalidName(f"not a name: {name[:40]!r}")
    return name


def check_tag(tag: str) -> str:
    """Return the tag if a filter can name it.

    Raises:
        InvalidRequest: it has white space, ``|``, ``,`` or ``*`` in it.
    """
    found = _NOT_IN_TAGS.search(tag)
    if found is not None:
        raise InvalidRequest(
            f"not a tag: {tag[:80]!r} has {found.group()!r} in it, so no filter could name it; a "
            "message has one tag, a word without white space, '|', ',' and '*'"
        )
    return tag


class Durability(enum.Enum):
    """When a send may be answered."""

    NORMAL = "normal"
    """Synced on the primary's disk, and on the replica's file system where there is one."""
    STRICT = "strict"
    """Two copies, or the send is refused."""
    FAST = "fast"
    """Written, synced within 100 ms; delivered only when durable."""


class Mode(enum.Enum):
    """How a group consumes a topic."""

    SHARED = "shared"
    ORDERED = "ordered"


class Start(enum.Enum):
    """Where a new group begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Exhausted(enum.Enum):
    """What becomes of a row after its last attempt."""

    DEAD_LETTER = "dead-letter"
    HOLD = "hold"
    """It stays with its key, which waits for an operator (ordered groups)."""


class TopicSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a topic."""

    name: str
    queues: int = 1
    ordered: bool = False
    durability: Durability = Durability.NORMAL
    retention_us: int = 7 * DAY_US
    keep_until_consumed: bool = True
    """Only for topics that have a group: unread messages are kept up to the disk watermark."""
    ignore_ordering_keys: bool = False
    """Only for topics that are not ordered: a message with an ordering key is stored, key and all,
    and no order is kept by it. False: it is refused."""

    def check(self) -> TopicSpec:
        """Return self, or raise InvalidRequest naming the field."""
        check_name(self.name)
        if not 1 <= self.queues <= 4096:
            raise InvalidRequest(f"queues must be 1 to 4096, not {self.queues}")
        if not 0 < self.retention_us <= LONGEST_US:
            raise InvalidRequest(
                "retention must be positive and at most a hundred years, not "
                f"{_seconds(self.retention_us)}"
            )
        if self.ordered and self.ignore_ordering_keys:
            raise InvalidRequest("ignore_ordering_keys is for topics that are not ordered")
        return self


def _seconds(us: int) -> str:
    return f"{us / SECOND_US:g} s"


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a row that failed comes again, and how often."""

    enabled: bool = True
    """Off: the first failure is the last."""
    first_us: int = SECOND_US
    factor: float = 2.0
    cap_us: int = 5 * MINUTE_US
    jitter: float = 0.2
    """Share of the delay that is random, up and down."""
    attempts: int = 16
    exhausted: Exhausted = Exhausted.DEAD_LETTER

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
        return self


class SubscriptionSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a consumer group on a topic."""

    mode: Mode = Mode.SHARED
    tags: str = ""
    """Filter, such as ``paid || refunded``; empty: every message."""
    start: Start = Start.EARLIEST
    retry: RetryPolicy = RetryPolicy()
    lease_us: int = 30 * SECOND_US
    window: int = 10_000
    """Most rows of a queue leased at one time."""
    paused: bool = False

    @property
    def policy(self) -> RetryPolicy:
        """The retry policy as it has effect: only groups that keep order hold messages."""
        if self.retry.exhausted is Exhausted.HOLD and self.mode is not Mode.ORDERED:
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
        return self


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Caps and expiries of the broker's views; every one has a metric of the same name."""

    topics: int = 100_000
    groups: int = 10_000
    group_queues: int = 65_536
    """A topic's groups times its queues: each group holds a place in each queue."""
    apps: int = 10_000
    holds: int = 64
    gone_names: int = 50_000
    """Names of topics, groups and sessions that are gone and that the journal may still mention."""
    sessions: int = 20_000
    session_grace_us: int = 10 * SECOND_US
    producers: int = 200_000
    producer_idle_us: int = 10 * MINUTE_US
    dedup_window_us: int = 10 * MINUTE_US
    dedup_batches: int = 1_000_000
    """Batches, and application ids each counted as one, that deduplication remembers."""
    send_timeout_us: int = 10 * SECOND_US
    """Longest that a client goes on with a send; deduplication remembers at least twice as long."""
    intervals: int = 10_000
    """Runs of rows that one (group, queue) may have open."""
    parked: int = 10_000
    """Rows that one ordered (group, queue) may have waiting behind busy keys."""
    replay_rows: int = 1_000_000
    """Rows of one (group, queue) that a replay may make wait for their next hand-out."""
    replay_keyed_rows: int = 100_000
    """The same of an ordered group, where each row that waits takes a place in its key's line."""
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
    """Their bytes in the journal."""
    transaction_us: int = HOUR_US
    """How long after its first prepared batch an undecided transaction is rolled back."""
    writers: int = 10_000
    """Names that transactions are prepared under."""
    writer_idle_us: int = 30 * DAY_US
    """A writer that does nothing for so long is forgotten, with all of its decisions."""
    decisions: int = 1_024
    """Decided transactions of one writer that are remembered."""
    decision_us: int = DAY_US
    """How long they are, before the writer's newest; the highest committed one is for good."""
    pull_messages: int = 10_000
    pull_bytes: int = 8 * 1024 * 1024
    waiters: int = 100_000
    """Parked pulls."""
    batch_bytes: int = 17 * 1024 * 1024
    filter_scan_rows: int = 10_000
    filter_cursor_us: int = SECOND_US
