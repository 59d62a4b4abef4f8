"""The series of single groups in ``/metrics``, made piece by piece.

With 40,000 groups these are most of a scrape, so a piece reads some hundred queues and the loop
does other work before the next one; the numbers of two groups may be some milliseconds apart. The
setting ``metrics_groups`` limits how many groups have series: those that were made first, so that a
series stays until its group is deleted. The gauge ``ternmq_groups_left_out`` counts the others.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from ternmq.broker.catalog.catalog import Subscription
from ternmq.broker.query.messages import Queries
from ternmq.model.errors import CorruptJournal, DiskReadError, JournalError
from ternmq.server.telemetry.families import Family

PIECE_QUEUES: Final = 200
"""Queues that one piece reads, at least those of one group: below a millisecond."""
GROUP_WORK: Final = 2
"""Queues that a group counts for in addition to its own: its lines are written."""


FAMILIES: Final = (
    Family(
        "ternmq_delivered_total", "counter", ("topic", "group"), "Messages delivered to consumers.",
    ),
    Family(
        "ternmq_settled_total", "counter", ("topic", "group", "outcome"),
        "Messages settled: `done`, `retry`, `dead` or `released`.",
    ),
    Family("ternmq_group_lag", "gauge", ("topic", "group"), "Messages that were never delivered."),
    Family("ternmq_group_leased", "gauge", ("topic", "group"), "Messages that consumers hold."),
    Family(
        "ternmq_group_ready", "gauge", ("topic", "group"),
        "Messages that were returned, or wait behind another message of their ordering key; like"
        " the lag, they wait for a consumer.",
    ),
    Family(
        "ternmq_group_retrying", "gauge", ("topic", "group"), "Messages that wait for a retry."
    ),
    Family(
        "ternmq_group_retries_due", "gauge", ("topic", "group"),
        "Messages of `ternmq_group_retrying` whose retry is due and that no consumer has fetched;"
        " in a queue with more than 4,096 of them, at least 4,096 are counted.",
    ),
    Family("ternmq_group_dead_letters", "gauge", ("topic", "group"), "Dead letters."),
    Family(
        "ternmq_group_members", "gauge", ("topic", "group"),
        "Members of a group of mode `owned` or `exclusive`; other groups have no series.",
    ),
    Family(
        "ternmq_group_unowned_queues", "gauge", ("topic", "group"),
        "Queues of a group of mode `owned` or `exclusive` that belong to no member; other groups"
        " have no series.",
    ),
)  # fmt: skip
"""The families, in the order in which they are written."""


class Standing(NamedTuple):
    """Sums over the queues of a group."""

    lag: int
    leased: int
    ready: int
    waiting: int
    due: int
    dead: int


class GroupSeries:
    """The groups' part of one scrape. Not thread-safe: call it from the broker's loop.

    Args:
        queries: Queries to the core.
        most: Most groups that have series.
    """

    def __init__(self, queries: Queries, most: int) -> None:
        self._queries = queries
        self._catalog = queries.catalog
        self._left = most
        self._last = 0
        self.failed: list[JournalError] = []
        """Errors because of which groups have no series in this scrape."""
        self._chunks: list[list[bytes]] = [[] for _ in FAMILIES]
        self._pieces: list[list[str]] = [[] for _ in FAMILIES]

    def step(self) -> bool:
        """Write the next groups; return whether there are more.

        Raises:
            WouldBlock: The disk must be read first; call it again afterwards, nothing is lost.
        """
        work = 0
        for number in islice(self._catalog.group_numbers.behind(self._last), self._left):
            if work >= PIECE_QUEUES:
                break
            one = self._catalog.groups[number]
            try:
                standing = standing_of(self._queries, one)
            except (DiskReadError, CorruptJournal) as error:
                self.failed.append(error)
            else:
                self._write(one, standing)
            self._last = number
            self._left -= 1
            work += len(one.queues) + GROUP_WORK
        else:
            self._end_piece()
            return False
        self._end_piece()
        return True

    def _write(self, one: Subscription, standing: Standing) -> None:
        delivered, settled, lag, leased, ready, retrying, due, dead, members, unowned = self._pieces
        # Names of topics and groups have no character that would have to be escaped.
        labels = f'group="{one.name}"'
        behind = f'topic="{one.topic.name}"}}'
        counts = one.counts
        if counts is not None:
            delivered.append(f"ternmq_delivered_total{{{labels},{behind} {counts.delivered}\n")
            for outcome, rows in counts.settled.items():
                settled.append(
                    f'ternmq_settled_total{{{labels},outcome="{outcome}",{behind} {rows}\n'
                )
        lag.append(f"ternmq_group_lag{{{labels},{behind} {standing.lag}\n")
        leased.append(f"ternmq_group_leased{{{labels},{behind} {standing.leased}\n")
        ready.append(f"ternmq_group_ready{{{labels},{behind} {standing.ready}\n")
        retrying.append(f"ternmq_group_retrying{{{labels},{behind} {standing.waiting}\n")
        due.append(f"ternmq_group_retries_due{{{labels},{behind} {standing.due}\n")
        dead.append(f"ternmq_group_dead_letters{{{labels},{behind} {standing.dead}\n")
        owners = one.owners
        if owners is not None:
            free = owners.unowned(len(one.queues))
            members.append(f"ternmq_group_members{{{labels},{behind} {len(owners.members)}\n")
            unowned.append(f"ternmq_group_unowned_queues{{{labels},{behind} {free}\n")

    def _end_piece(self) -> None:
        for lines, chunks in zip(self._pieces, self._chunks, strict=True):
            if lines:
                chunks.append("".join(lines).encode("ascii"))
                lines.clear()

    def text(self) -> list[bytes]:
        """Return the text of all groups, family by family, in pieces."""
        found: list[bytes] = []
        for family, chunks in zip(FAMILIES, self._chunks, strict=True):
            head = f"# HELP {family.name} {family.text}\n# TYPE {family.name} {family.kind}\n"
            found.append(head.encode("ascii"))
            found += chunks
        return found


def series_of(queries: Queries, one: Subscription) -> dict[str, float]:
    """Return the series of one group, by name and labels, for STATUS.

    Raises:
        WouldBlock: As ``Queries.visible``.
    """
    labels = f'group="{one.name}"'
    topic = f'topic="{one.topic.name}"'
    standing = standing_of(queries, one)
    values = {
        f"ternmq_group_lag{{{labels},{topic}}}": standing.lag,
        f"ternmq_group_leased{{{labels},{topic}}}": standing.leased,
        f"ternmq_group_ready{{{labels},{topic}}}": standing.ready,
        f"ternmq_group_retrying{{{labels},{topic}}}": standing.waiting,
        f"ternmq_group_retries_due{{{labels},{topic}}}": standing.due,
        f"ternmq_group_dead_letters{{{labels},{topic}}}": standing.dead,
    }
    owners = one.owners
    if owners is not None:
        values[f"ternmq_group_members{{{labels},{topic}}}"] = len(owners.members)
        free = owners.unowned(len(one.queues))
        values[f"ternmq_group_unowned_queues{{{labels},{topic}}}"] = free
    counts = one.counts
    if counts is not None:
        values[f"ternmq_delivered_total{{{labels},{topic}}}"] = counts.delivered
        for outcome, rows in counts.settled.items():
            values[f'ternmq_settled_total{{{labels},outcome="{outcome}",{topic}}}'] = rows
    return {name: float(value) for name, value in values.items()}


def standing_of(queries: Queries, one: Subscription) -> Standing:
    """Return a group's sums over all its queues. O(its queues).

    Raises:
        WouldBlock: As ``Queries.visible``.
    """
    lag = leased = ready = waiting = due = dead = 0
    topic = one.topic
    for queue, progress in zip(topic.queues, one.queues, strict=True):
        unread = queries.visible(topic, queue) - max(progress.cursor, progress.scan)
        if unread > 0:
            lag += unread
        leased += progress.leased_rows
        ready += progress.ready.rows
        waiting += progress.failures.waiting_rows
        due += progress.failures.due_found
        dead += progress.failures.dead_rows
    return Standing(lag, leased, ready, waiting, due, dead)
