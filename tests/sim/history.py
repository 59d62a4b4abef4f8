"""What clients did and were told: the outside view, kept across restarts of the broker.

Results are ``ok``, ``fail`` (definitely not stored) or unknown (no answer came). What was told
obliges the broker: see ``demand``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ternmq.broker.gate.replies import PullReply
from ternmq.broker.group.lease import LEASE_BITS
from ternmq.record.batch.batch import Row
from ternmq.record.batch.hashes import key_hash
from tests.sim.numbers import ToldNumbers
from tests.sim.tape import Violation

GroupKey = tuple[int, int, int]
"""group, topic, queue."""


class Tried:
    """A batch that a producer made and may have sent several times."""

    __slots__ = (
        "answered",
        "batch",
        "born_us",
        "opened",
        "producer",
        "queue",
        "refused",
        "reign",
        "rows",
        "scheduled",
        "sent",
        "time_us",
        "topic",
        "topic_number",
        "transaction",
    )

    def __init__(self, topic: str, producer: int, batch: bytes, rows: Sequence[Row], born: int):
        self.topic = topic
        self.producer = producer
        self.batch = batch
        self.rows = rows
        self.born_us = born
        self.topic_number = 0
        self.opened: tuple[int, int] | None = None
        """Name of the transaction with check-back that it is prepared in."""
        self.transaction: tuple[str, int, str] | None = None
        """Writer, batch id and part, if it is prepared and not sent."""
        self.time_us = 0
        self.sent = 0
        self.reign = 0
        """In which reign it was taken in last."""
        self.refused = False
        """Every attempt so far was refused definitely: it must not be in the journal."""
        self.answered: tuple[int, int | None, int] | None = None
        """The first receipt: queue, first offset, count."""
        self.queue: int | None = None
        """The queue that its producer asks for, if any."""
        self.scheduled: bool | None = None
        """Whether the first receipt said that its rows come due later."""

    @property
    def first_sequence(self) -> int:
        """The sequence of its first row."""
        return int.from_bytes(self.batch[32:40], "little")


class Stored:
    """A message of a queue, as the journal has it."""

    __slots__ = ("at", "end", "home", "position", "time_us", "tried")

    def __init__(
        self, tried: Tried, at: int, position: int, end: int, time_us: int, home: int = -1
    ) -> None:
        self.tried = tried
        self.at = at
        self.position = position
        self.end = end
        self.time_us = time_us
        self.home = position if home < 0 else home
        """The record that holds its content; ``position`` is of the one that made it a message."""

    def row(self) -> Row:
        """Return what the producer sent."""
        return self.tried.rows[self.at]

    def ordering_hash(self) -> int:
        """Return the hash of its ordering key."""
        return key_hash(self.row().ordering_key.encode())


Name = tuple[str, int]
"""Of a transaction: writer and batch id."""


class Asked:
    """What was asked for a transaction, and what was told."""

    __slots__ = ("aborts", "commits", "end", "told")

    def __init__(self) -> None:
        self.commits: list[tuple[tuple[int, ...], int]] = []
        """Prepared ids and digest of every commit that was asked for."""
        self.aborts = 0
        self.told: tuple[int, int] | None = None
        """Digest and rows, once a commit was answered."""
        self.end = 0
        """What that answer rested on."""


class Opening:
    """What was asked for a transaction with check-back, and what was told."""

    __slots__ = ("decisions", "number", "taken_up", "told")

    def __init__(self) -> None:
        self.decisions: set[tuple[bool, int]] = set()
        """(commit, question that is answered; 0: none) of every decision that was asked for."""
        self.told: tuple[bool, int] | None = None
        """Whether it was committed, and its rows, once an answer said so."""
        self.taken_up = 0
        """How often somebody asked for the questions to begin anew."""
        self.number = 0
        """Once an answer told it."""


def kept_from(rows: Sequence[Stored], first: int) -> int:
    """Return the lowest offset that is kept in order when the journal begins at ``first``."""
    for offset in range(len(rows) - 1, -1, -1):
        if rows[offset].home < first:
            return offset + 1
    return 0


class Told(NamedTuple):
    """What an answer said of a row."""

    lease: int
    deliveries: int
    suspect_below: int


class Seen:
    """What the members of one group saw of one queue."""

    __slots__ = ("acked", "delivered", "resets")

    def __init__(self) -> None:
        self.resets = 0
        self.acked: dict[int, int] = {}
        """Row whose ack was answered -> its lease; no later one may deliver it, ever."""
        self.delivered: dict[int, Told] = {}
        """Row -> the earliest lease that was told of; later ones must say that it comes again."""


class History:
    """Everything that clients were told."""

    def __init__(self) -> None:
        self.tried: dict[bytes, Tried] = {}
        self.named: dict[Name, Asked] = {}
        """Of transactions, what was asked and told."""
        self.openings: dict[tuple[int, int], Opening] = {}
        """Of transactions with check-back, by name."""
        self.seen: dict[GroupKey, Seen] = {}
        self.content: dict[tuple[int, int, int], tuple[bytes, int]] = {}
        """(topic, queue, offset) -> (batch, row): what was told of it first."""
        self.demand = 0
        """Everything below was relied upon: some answer rests on it, or a delivery shows it."""
        self.demands: list[tuple[int, int]] = [(0, 0)]
        """(length of the disk's log, demand) of this reign, growing."""
        self.duplicates = 0
        self.marked = 0
        self.asked: dict[GroupKey, set[int]] = {}
        """Rows that somebody asked to be handed out again."""
        self.numbers = ToldNumbers()
        self.cancels: set[tuple[str, int, int]] = set()
        """Topic's name, producer and sequence of what somebody asked to cancel."""
        self.fates: dict[tuple[int, int, int], tuple[str, int]] = {}
        """Topic, producer and sequence of scheduled messages of which an answer said what became of
        them -> that, and what the answer rested on."""

    def begin_reign(self) -> None:
        """The log begins anew; what was relied upon stays."""
        self.demands = [(0, self.demand)]

    def rely(self, log_length: int, position: int) -> None:
        """Somebody was told something that rests on all below ``position``."""
        if position > self.demand:
            self.demand = position
            self.demands.append((log_length, position))

    def same_content(self, topic: int, queue: int, offset: int, batch: bytes, row: int) -> None:
        """Check that (topic, queue, offset) never names two messages.

        Raises:
            Violation: it does.
        """
        known = self.content.setdefault((topic, queue, offset), (batch, row))
        if known != (batch, row):
            raise Violation(f"offset {offset} of {topic}/{queue} was told of two messages")

    def receipt(self, tried: Tried, queue: int, first: int | None, count: int) -> None:
        """A send was answered ok."""
        told = (queue, first, count)
        if tried.answered is None:
            tried.answered = told
        elif tried.answered != told and first is not None:
            raise Violation(f"a resend got {told}, the first receipt was {tried.answered}")
        tried.refused = False

    def seen_of(self, key: GroupKey) -> Seen:
        """Return what a group saw of a queue."""
        seen = self.seen.get(key)
        if seen is None:
            seen = self.seen[key] = Seen()
        return seen

    def delivered(
        self, key: GroupKey, reply: PullReply, rows: Sequence[Stored], resets: int
    ) -> None:
        """Rows were handed to a consumer; ``resets`` is how often there had been one by then.

        Answers overtake each other on their way: what an earlier lease handed out may be told of
        after the rows came again, or were acked, under a later one.

        Raises:
            Violation: a message came again without saying so, or after its ack was answered.
        """
        seen = self.seen_of(key)
        lease = reply.epoch << LEASE_BITS | reply.lease
        at = 0
        for start, stop, attempt, deliveries in reply.runs:
            for offset in range(start, stop):
                stored = rows[at]
                at += 1
                self.same_content(key[1], key[2], offset, stored.tried.batch, stored.at)
                if resets == seen.resets and lease >= seen.acked.get(offset, lease + 1):
                    raise Violation(f"group {key}: {offset} was acked and comes again")
                now = Told(lease, deliveries, reply.suspect_below)
                known = seen.delivered.get(offset, now)
                if known is not now:
                    self.duplicates += 1
                    if known.lease == lease:
                        raise Violation(f"group {key}: {offset} comes twice under one lease")
                    later = max(known, now)
                    if later.deliveries == 1:
                        if stored.position >= later.suspect_below:
                            raise Violation(f"group {key}: {offset} comes again as if new")
                        self.marked += 1
                seen.delivered[offset] = min(known, now)
                if deliveries < attempt and attempt > 1:
                    raise Violation(f"group {key}: {offset} attempt {attempt} of {deliveries}")

    def reset(self, key: GroupKey, offset: int) -> None:
        """A reset was asked for: rows from ``offset`` on may come again."""
        seen = self.seen_of(key)
        seen.resets += 1
        seen.acked = {one: lease for one, lease in seen.acked.items() if one < offset}

    def replayed(self, key: GroupKey, offsets: set[int]) -> None:
        """A replay was asked for: these rows may come again, and no others."""
        self.asked.setdefault(key, set()).update(offsets)
        seen = self.seen_of(key)
        for offset in offsets:
            seen.acked.pop(offset, None)


OK: Final = "ok"
FAIL: Final = "fail"
UNKNOWN: Final = "unknown"
