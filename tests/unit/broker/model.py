"""The short reference: what one group is owed of one queue, a dictionary of single rows.

It knows nothing of runs, shards, cursors, records or restarts. It does not say which rows a pull
must bring (there is a choice), but judges what it brought: every row must have been available, with
the counts it must have by now, nothing may overtake, and nothing comes only if nothing was there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ternmq.broker.gate.replies import PullReply
from ternmq.model.specs import Exhausted, RetryPolicy
from ternmq.record.fact.facts import Outcome

NEVER: Final = 1 << 62


@dataclass
class Row:
    """A row that is owed, or dead."""

    state: str
    attempt: int
    deliveries: int
    when: int = 0
    """Due time of a row that waits."""


@dataclass
class Held:
    """A lease as its consumer knows it."""

    session: int
    until: int
    rows: set[int] = field(default_factory=set)


class Reference:
    """What a group is owed.

    Args:
        ordered: Whether a key's rows come one stretch at a time.
        tags: What its filter lets through; empty: everything.
    """

    def __init__(self, *, ordered: bool = False, tags: str = "") -> None:
        self.ordered = ordered
        self.tags = tags
        self.policy = RetryPolicy()
        self.window = 1000
        self.lease = 30_000_000
        self.unread: list[int] = []
        """Offsets that were never handed out, nor passed over."""
        self.key: dict[int, str] = {}
        """Of every row of the queue: its ordering key, or its tag."""
        self.rows: dict[int, Row] = {}
        self.leases: dict[tuple[int, int], Held] = {}
        self.reset_done = False
        self.since = 0
        self.given: set[int] = set()
        """Given since the last reset, besides what lies between ``since`` and the cursor."""
        self.earlier: set[int] = set()
        """Given before the last reset or a replay, as far as the broker can know."""
        self.came: set[int] = set()
        """Rows that really were handed out."""
        self.limited = False
        """Other limits may keep rows back that could come."""

    # -- questions ------------------------------------------------------------------------------

    def in_state(self, *states: str) -> list[int]:
        return sorted(at for at, row in self.rows.items() if row.state in states)

    def leased(self) -> int:
        return len(self.in_state("leased"))

    def matches(self, offset: int) -> bool:
        return not self.tags or self.key[offset] in self.tags

    def available(self, offset: int, now: int) -> tuple[int, int] | None:
        """Return attempt and deliveries with which an owed row would come now."""
        row = self.rows[offset]
        if row.state == "ready":
            first = 2 if offset in self.earlier else 1
            return row.attempt, row.deliveries + 1 if row.deliveries else first
        if row.state == "waiting" and row.when <= now:
            return row.attempt + 1, row.deliveries + 1
        return None

    def offered(self, now: int, visible: int) -> dict[int, tuple[int, int]]:
        """Return every row that may come now, with its counts."""
        offered: dict[int, tuple[int, int]] = {}
        busy = {self.key[at] for at in self.in_state("leased")} if self.ordered else set()
        pending = self.in_state("ready", "waiting") + [at for at in self.unread if at < visible]
        for at in sorted(pending):
            fresh = (1, 2 if at in self.earlier else 1)
            counts = self.available(at, now) if at in self.rows else fresh
            if not self.ordered:
                if counts is not None and (at in self.rows or self.matches(at)):
                    offered[at] = counts
                continue
            if self.key[at] in busy:
                continue
            if counts is None:
                busy.add(self.key[at])  # what waits keeps the rows behind it waiting
                continue
            offered[at] = counts
        return offered

    # -- what happens -----------------------------------------------------------------------------

    def stored(self, first: int, keys: Iterable[str]) -> None:
        for at, key in enumerate(keys, first):
            self.key[at] = key
            self.unread.append(at)

    def pulled(
        self, reply: PullReply | None, now: int, visible: int, asked: int, session: int
    ) -> None:
        offered = self.offered(now, visible)
        room = min(asked, self.window - self.leased())
        if reply is None:
            assert self.limited or room <= 0 or not offered, f"nothing came, but {offered} could"
            return
        got = {
            at: (attempt, deliveries)
            for start, stop, attempt, deliveries in reply.runs
            for at in range(start, stop)
        }
        assert 0 < len(got) <= room
        for at, counts in got.items():
            assert offered.get(at) == counts, f"{at} came as {counts}, not {offered.get(at)}"
        fresh = [at for at in sorted(got) if at not in self.rows]
        if self.ordered:
            for at in got:
                earlier = [
                    other for other in offered if other < at and self.key[other] == self.key[at]
                ]
                assert set(earlier) <= set(got), f"{at} overtook {earlier}"
        elif fresh:
            wanted = [at for at in self.unread if at < visible and self.matches(at)]
            assert fresh == wanted[: len(fresh)], "rows were passed over"
            self.unread = [at for at in self.unread if at > fresh[-1]]
        self.unread = [at for at in self.unread if at not in got]
        progress = Held(session, now + self.lease, set(got))
        self.leases[reply.epoch, reply.lease] = progress
        assert reply.until_us == progress.until
        for at, (attempt, deliveries) in got.items():
            self.rows[at] = Row("leased", attempt, deliveries)
        self.came.update(got)

    def settled(
        self,
        lease: tuple[int, int],
        outcome: Outcome,
        rows: set[int],
        now: int,
        delay: int | None = None,
    ) -> None:
        """A consumer said what became of rows that it holds."""
        progress = self.leases[lease]
        assert rows <= progress.rows
        spoken = set(rows)
        stops: dict[str, int] = {}  # of each key the first row that stays and that nobody holds

        if self.ordered and outcome in (Outcome.RETRY, Outcome.RELEASED):
            seen: set[str] = set()
            first: set[int] = set()
            for at in sorted(rows):
                if self.key[at] not in seen:
                    first.add(at)
                    seen.add(self.key[at])
            for at in sorted(rows - first):
                self._give_back(at)
                stops.setdefault(self.key[at], at)
            rows = first
        for at in sorted(rows):
            if not self._judge(at, outcome, now, delay):
                stops[self.key[at]] = min(at, stops.get(self.key[at], at))
        progress.rows -= spoken
        if self.ordered:
            for at in sorted(progress.rows):
                if stops.get(self.key[at], at) < at:
                    self._give_back(at)
                    progress.rows.discard(at)
        if not progress.rows:
            del self.leases[lease]

    def _give_back(self, at: int) -> None:
        self.rows[at].state = "ready"

    def _judge(self, at: int, outcome: Outcome, now: int, delay: int | None) -> bool:
        """Let a row be done, dead, waiting or ready; return whether its key flows on."""
        row = self.rows[at]
        if outcome is Outcome.DONE:
            del self.rows[at]
            return True
        if outcome is Outcome.RELEASED:
            row.state = "ready"
            return False
        policy = self.policy
        last = not policy.enabled or row.attempt >= policy.attempts
        if outcome is Outcome.RETRY and not last:
            if delay is None:
                wait = policy.first_us * policy.factor ** (row.attempt - 1)
                delay = int(min(wait, policy.cap_us))
            row.state, row.when = "waiting", now + delay
            return False
        if outcome is Outcome.RETRY and self.ordered and policy.exhausted is Exhausted.HOLD:
            row.state, row.when = "waiting", NEVER
            return False
        row.state, row.when = "dead", now
        return True

    def settled_blind(
        self, rows: Iterable[int], outcome: Outcome, now: int, delay: int | None
    ) -> None:
        """A consumer whose hand-out was lost with power said what became of rows."""
        for at in rows:
            self.unread.remove(at)
            self.rows[at] = Row("leased", 1, 1)
            self._judge(at, outcome, now, delay)

    def time_passed(self, now: int) -> None:
        for lease, progress in list(self.leases.items()):
            if progress.until <= now:
                self._end_in_order(lease, now)

    def _end_in_order(self, lease: tuple[int, int], now: int) -> None:
        # Which row is the head of its key is asked before any row of the lease is judged.
        progress = self.leases.pop(lease)
        heads = {
            at
            for at in progress.rows
            if not self.ordered
            or not any(
                other < at and self.key[other] == self.key[at] and row.state != "dead"
                for other, row in self.rows.items()
            )
        }
        for at in sorted(progress.rows):
            if at in heads:
                self._judge(at, Outcome.RETRY, now, 0)
            else:
                self._give_back(at)

    def session_ended(self, session: int, now: int, *, counted: bool) -> None:
        for lease, progress in list(self.leases.items()):
            if progress.session == session:
                if counted:
                    self._end_in_order(lease, now)
                else:
                    for at in self.leases.pop(lease).rows:
                        self._give_back(at)

    def given_by(self, cursor: int) -> set[int]:
        """Return the rows that may have been given when the cursor is there."""
        return self.earlier | self.given | set(range(self.since, cursor))

    def reset(self, offset: int, cursor: int) -> None:
        self.earlier, self.given, self.since = self.given_by(cursor), set(), offset
        missed = {at for at in self.came if at < cursor} - self.earlier
        assert not missed, f"{missed} would come as if new"
        self.reset_done = True
        self.leases.clear()
        self.rows = {
            at: row for at, row in self.rows.items() if row.state == "dead" and at < offset
        }
        self.unread = [at for at in sorted(self.key) if at >= offset]

    def skipped(self, offset: int, parked: set[int], cursor: int) -> None:
        """Everything unread below an offset is passed over, but what waits behind its key."""
        self.given.update(range(self.since, cursor))
        self.since = offset
        self.unread = [at for at in self.unread if at >= offset or at in parked]

    def let_go(self, offsets: Iterable[int], now: int) -> None:
        for at in offsets:
            self.rows[at].when = now

    def given_up(self, offsets: Iterable[int]) -> None:
        for at in offsets:
            del self.rows[at]

    def replayed(self, offsets: Iterable[int], cursor: int) -> None:
        """Rows are handed out again, whatever became of them; what was not read stays unread."""
        again: set[int] = set()
        marked: set[int] = set()
        known = self.given_by(cursor)
        for at in sorted(offsets):
            if at in self.rows:
                again.add(at)
            elif at in self.unread:
                if at < cursor and self.matches(at):
                    again.add(at)  # parked behind its key: it is ready as it was
            elif at >= cursor:
                self.unread = sorted([*self.unread, at])  # done ahead of the cursor
                self.reset_done = True
            elif self.matches(at):
                assert at in known or at not in self.came
                self.rows[at] = Row("ready", 1, 0)
                again.add(at)
                marked.add(at)
        self._begin_round(again, cursor)
        self.earlier |= marked & known

    def redriven(self, offsets: Iterable[int], cursor: int) -> None:
        """Dead letters are handed out again."""
        self._begin_round({at for at in offsets if self.rows[at].state == "dead"}, cursor)

    def _begin_round(self, again: set[int], cursor: int) -> None:
        self.given |= again - self.given_by(cursor)
        if again:
            self.reset_done = True
        first: dict[str, int] = {}
        for at in sorted(again):
            first.setdefault(self.key[at], at)
            row = self.rows.get(at)
            if row is not None:
                self._take_back(at)
                self.rows[at] = Row("ready", 1, row.deliveries)
        if self.ordered:
            for at in self.in_state("leased"):
                if first.get(self.key[at], at) < at:
                    self._take_back(at)
                    self._give_back(at)

    def _take_back(self, at: int) -> None:
        for lease, progress in list(self.leases.items()):
            progress.rows.discard(at)
            if not progress.rows:
                del self.leases[lease]
