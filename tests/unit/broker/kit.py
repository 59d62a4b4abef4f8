"""A broker on a disk in memory with a clock by hand, and what its tests ask of every state.

``World`` runs commands as a shell would: it repeats those that would block, and checks every body
that is handed out against what was sent. ``explore`` runs a scenario again and again, each time
with STATE sets written from another moment on, object by object between the commands, and once with
reads that would block at random; every run must end in the same state, and so must opening its
disk.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from unittest.mock import patch

from ternmq.broker.broker import Broker, Woken
from ternmq.broker.clock.timers import NEVER_US, Timer
from ternmq.broker.dedup.dedup import Dedup
from ternmq.broker.gate.replies import (
    DoneReply,
    PrepareReply,
    PullReply,
    ResolveReply,
    SendReply,
    SettleReply,
)
from ternmq.broker.group.failedrows import HELD_US, SHARD_BITS
from ternmq.broker.group.keyorder import KeyOrder
from ternmq.broker.group.lease import LEASE_BITS
from ternmq.broker.group.lines import Lines
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.runs import merge
from ternmq.broker.ledger.views import Views
from ternmq.broker.operation.drains import Drain
from ternmq.broker.start import Options, open_broker
from ternmq.broker.transaction.checked import CheckedTransaction
from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.recovery.recovery import RecoveryReport
from ternmq.model.specs import Limits, Mode, RetryPolicy, SubscriptionSpec, TopicSpec
from ternmq.record.batch.batch import Batch, Row, encode, topic_seed
from ternmq.record.fact import messages, moved
from ternmq.record.fact.facts import Outcome, Span
from ternmq.record.fact.header import HEADER_BYTES, Kind
from ternmq.record.fact.state import DEDUP, FORGOTTEN, GLOBAL, WRITER
from ternmq.wire import bodies

START_US: Final = 1_700_000_000_000_000
SECOND: Final = 1_000_000
STEADY: Final = RetryPolicy(first_us=SECOND, factor=2.0, cap_us=300 * SECOND, jitter=0.0)
"""Retries whose times a test can tell beforehand."""

T = TypeVar("T")


class Nothing:
    """A job that has nothing to do."""

    def run(self) -> None:
        """Do nothing."""


class Flaky:
    """Makes reads block at random, each of them once in a command."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.blocked: set[object] = set()

    def wrap(self, call: Callable[..., T]) -> Callable[..., T]:
        def wrapped(*args: Any, **named: Any) -> T:
            read = (call.__name__, *args, *named.values())
            if read not in self.blocked and self.chance.random() < 0.3:
                self.blocked.add(read)
                raise WouldBlock(Nothing())
            return call(*args, **named)

        return wrapped

    def spoil(self, broker: Broker) -> None:
        for owner, name in (
            (broker.store, "get"),
            (broker.store, "at"),
            (broker.index, "locate"),
            (broker.index, "visible"),
            (broker.index, "moved"),
            (broker.index, "settlement"),
        ):
            setattr(owner, name, self.wrap(getattr(owner, name)))


class World:
    """One broker, its disk and its clock.

    Args:
        limits: Of the broker.
        state_from: From which moment (command) on STATE sets are written; None: never.
        budget: Objects of a set written at a time.
        stride: How many commands come between.
        flaky: Seed of reads that block at random; None: they never do.
        segment_bytes: Of the journal.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        state_from: int | None = None,
        budget: int = 1,
        stride: int = 1,
        flaky: int | None = None,
        segment_bytes: int = 1 << 20,
        disk: MemoryDisk | None = None,
    ) -> None:
        self.options = Options(
            limits=limits or Limits(), segment_bytes=segment_bytes, reserve_bytes=segment_bytes
        )
        self.disk = disk or MemoryDisk()
        self.now = START_US
        self.state_from = state_from
        self.budget = budget
        self.stride = stride
        self.moment = 0
        self.sets = 0
        self.flaky = Flaky(flaky) if flaky is not None else None
        self.sent: dict[tuple[int, int, int], bytes] = {}
        self.scheduled: dict[tuple[int, int], bytes] = {}
        """Bodies of what was scheduled, by producer and sequence."""
        self.prepared: dict[int, tuple[int, int, bytes]] = {}
        """Topic, queue and batch of what was prepared, by its id."""
        self.sequences: dict[int, int] = {}
        self.serial = 0
        self.end = 0
        """Where the journal ended when the last command was done."""
        self.report: RecoveryReport
        self.broker: Broker
        self._open(self.now)

    def _open(self, wall_us: int) -> None:
        started = open_broker(
            self.disk, wall_us=wall_us, chance=random.Random(7), options=self.options
        )
        self.broker, self.report = started.broker, started.report
        if self.flaky is not None:
            self.flaky.spoil(self.broker)

    # -- the shell's part -------------------------------------------------------------------------

    def run(self, command: Callable[[], T]) -> T:
        """Run a command as often as its reads block, then whatever comes between two commands."""
        if self.flaky is not None:
            self.flaky.blocked.clear()
        answer = waiting(command)
        self.end = self.broker.journal.end
        self.between()
        return answer

    def between(self) -> None:
        """Write a piece of STATE."""
        self.moment += 1
        if self.state_from is None or self.moment < self.state_from:
            return
        if (self.moment - self.state_from) % self.stride:
            return
        writer = self.broker.writer
        if not writer.active:
            writer.begin(self.now)
        left = [self.budget]

        def may_go_on() -> bool:
            left[0] -= 1
            return left[0] > 0

        if writer.step(self.now, may_go_on):
            self.sets += 1
        self.spare()

    def spare(self) -> None:
        journal = self.broker.journal
        while (job := journal.wants_spare()) is not None:
            job.run()
            journal.spare_ready(job)

    def commit(self) -> None:
        """Make everything durable."""
        journal = self.broker.journal
        journal.flush()
        job = journal.next_sync()
        if job is not None:
            job.run()
            journal.synced(job)
        self.broker.committed()
        self.spare()

    def woken(self) -> list[Woken]:
        """Return the parked pulls that are over now."""
        over: list[Woken] = []
        while some := self.run(lambda: self.broker.woken_pulls(self.now)):
            over += some  # groups that had to wait for a read come with a later call
        for one in over:
            if one.reply is not None:
                self._check(one.reply)
        return over

    def pass_time(self, us: int) -> None:
        """Let time pass, in one leap."""
        self.now += us
        for _ in range(10_000):
            more = self.broker.tick(self.now)
            more = self._read_for_due() or more
            self.between()
            if not more:
                return
        raise AssertionError("tick never ends")

    def _read_for_due(self) -> bool:
        """Run the reads that scheduled rows wait for; return whether there were any."""
        fulfilling = self.broker.fulfilling
        read = False
        while (job := fulfilling.next_job()) is not None:
            job.run()
            assert fulfilling.finished(job, None)
            read = True
        return read

    def restart(self, *, clean: bool = False, gap_us: int = SECOND) -> None:
        """Stop (or just vanish, with all that was written kept) and start again."""
        if clean:
            self.broker.close(self.now)
        else:
            self.broker.journal.flush()
        self.disk = MemoryDisk(self.disk.image())
        self.now += gap_us
        self._open(self.now)

    # -- commands ---------------------------------------------------------------------------------

    def topic(self, name: str, **settings: Any) -> int:
        spec = TopicSpec(name=name, **settings)
        number = self.run(lambda: self.broker.administration.create_topic(self.now, spec)).value
        assert isinstance(number, int)
        return number

    def group(self, topic: str, name: str, **settings: Any) -> int:
        ordered = self.broker.views.catalog.topic(topic).spec.ordered
        settings.setdefault("mode", Mode.ORDERED if ordered else Mode.SHARED)
        settings.setdefault("retry", STEADY)
        spec = SubscriptionSpec(**settings)
        number = self.run(
            lambda: self.broker.administration.subscribe(self.now, topic, name, spec)
        ).value
        assert isinstance(number, int)
        return number

    def change(self, topic: str, name: str, **settings: Any) -> None:
        """Change settings of a group."""
        old = self.broker.views.catalog.subscription(topic, name).spec
        named = {field: getattr(old, field) for field in old.__struct_fields__}
        spec = SubscriptionSpec(**(named | settings))
        self.run(
            lambda: self.broker.administration.change_subscription(self.now, topic, name, spec)
        )

    def join(self, client: str = "c") -> int:
        number = self.run(lambda: self.broker.clients.join(self.now, "app", client)).value
        assert isinstance(number, int)
        return number

    def resume(self, session: int) -> None:
        """Come back as the session's own client."""
        known = self.broker.views.sessions.by_number.get(session)
        client = "c" if known is None else known.info.client
        self.broker.clients.resume(session, "app", client)

    def leave(self, session: int) -> DoneReply:
        """Close a session, and give back what it holds."""
        return self.given_back(self.run(lambda: self.broker.clients.leave(self.now, session)))

    def keep(self, session: int, *kept: PullReply) -> DoneReply:
        """Give back what a session holds, but these."""
        leases = [(one.epoch, one.lease) for one in kept]
        return self.given_back(
            self.run(lambda: self.broker.clients.keep(self.now, session, leases))
        )

    def given_back(self, found: DoneReply | Drain) -> DoneReply:
        """Tick until leases have been given back."""
        if isinstance(found, Drain):
            over = self.broker.drains.over
            while found not in over:
                more = self.broker.tick(self.now)
                assert more or found in over
                self.end = self.broker.journal.end
                self.between()
            over.remove(found)
            found = DoneReply(found.position)
        return found

    def batch(
        self, topic: str, rows: Sequence[Row], producer: int = 1, first: int | None = None
    ) -> bytes:
        """Return a batch with the producer's next sequences."""
        if first is None:
            first = self.sequences.get(producer, 0)
            self.sequences[producer] = first + len(rows)
        ordered = self.broker.views.catalog.topic(topic).spec.ordered
        return encode(
            rows,
            topic_seed=topic_seed(topic),
            producer_id=producer,
            first_sequence=first,
            born_us=START_US,
            keyed=ordered,
        )

    def send_batch(self, topic: str, batch: bytes, queue: int | None = None) -> SendReply:
        reply = self.run(lambda: self.broker.send(self.now, topic, batch, queue))
        number = self.broker.views.catalog.topic(topic).number
        if reply.scheduled:
            whole = Batch(batch)
            for row, body in enumerate(whole.bodies()):
                self.scheduled.setdefault((whole.producer_id, whole.first_sequence + row), body)
        elif reply.count and not reply.duplicate:
            left_out = {one.row for one in reply.rows}
            bodies = [b for row, b in enumerate(Batch(batch).bodies()) if row not in left_out]
            next_ = self.broker.views.catalog.topics[number].queues[reply.queue].next
            for at, body in enumerate(bodies):
                self.sent[number, reply.queue, next_ - reply.count + at] = body
        return reply

    def send(
        self, topic: str, rows: int | str | Sequence[Row], *, queue: int | None = None,
        producer: int = 1, commit: bool = True,
    ) -> SendReply:  # fmt: skip
        """Send rows in one batch: so many, or one for each ordering key of a text, or these."""
        reply = self.send_batch(topic, self.batch(topic, self.rows(rows), producer), queue)
        if commit:
            self.commit()
        return reply

    def rows(self, rows: int | str | Sequence[Row]) -> Sequence[Row]:
        """Return so many rows, or one for each ordering key of a text, or these."""
        if isinstance(rows, int):
            return [Row(body=b"row %d" % self._serial()) for _ in range(rows)]
        if isinstance(rows, str):
            return [
                Row(body=b"%s %d" % (key.encode(), self._serial()), ordering_key=key)
                for key in rows
            ]
        return rows

    def _serial(self) -> int:
        self.serial += 1
        return self.serial - 1

    def prepare(
        self, topic: str, rows: int | str | Sequence[Row] | bytes, writer: str = "w",
        batch: int = 1, part: str = "0/0", *, queue: int | None = None, producer: int = 1,
        app: str = "app",
    ) -> PrepareReply:  # fmt: skip
        """Prepare rows, as ``send`` sends them, or a batch."""
        data = rows if isinstance(rows, bytes) else self.batch(topic, self.rows(rows), producer)
        reply = self.run(
            lambda: self.broker.prepare(self.now, app, topic, data, writer, batch, part, queue)
        )
        self.prepared[reply.prepared] = (reply.topic, reply.queue, data)
        return reply

    def decide(
        self, ids: Sequence[int], writer: str = "w", batch: int = 1, digest: int = 7, *,
        commit: bool = True, app: str = "app",
    ) -> ResolveReply:  # fmt: skip
        """Commit a transaction, and note where its rows are."""
        reply = self.run(
            lambda: self.broker.commit_transaction(self.now, app, writer, batch, ids, digest)
        )
        if not reply.repeated:
            self._note_committed(ids)
        if commit:
            self.commit()
        return reply

    def _note_committed(self, ids: Sequence[int]) -> None:
        bodies: dict[tuple[int, int], list[bytes]] = {}
        for id_ in ids:
            topic, queue, data = self.prepared[id_]
            batch = Batch(data)
            if any(batch.due_times_us() or ()):
                first = batch.first_sequence
                for row, body in enumerate(batch.bodies()):
                    self.scheduled[batch.producer_id, first + row] = body
                continue
            bodies.setdefault((topic, queue), []).extend(batch.bodies())
        for (topic, queue), found in bodies.items():
            next_ = self.broker.views.catalog.topics[topic].queues[queue].next
            for at, body in enumerate(found):
                self.sent[topic, queue, next_ - len(found) + at] = body

    def abort(
        self, writer: str = "w", batch: int = 1, app: str = "app", *, operator: bool = False
    ) -> ResolveReply:
        return self.run(
            lambda: self.broker.abort_transaction(self.now, app, writer, batch, operator=operator)
        )

    def pull(
        self, session: int, topic: str, group: str, rows: int = 32, *,
        queue: int | None = None, max_bytes: int | None = None, at_once: int = 0,
        detached_us: int = 0,
    ) -> PullReply | None:  # fmt: skip
        reply = self.run(
            lambda: self.broker.pull(
                self.now, session, topic, group, rows, max_bytes, queue, at_once, detached_us
            )
        )
        if reply is not None:
            self._check(reply)
            assert sum(run[1] - run[0] for run in reply.runs) <= rows
        return reply

    def settle(
        self,
        session: int,
        topic: str,
        group: str,
        pulled: PullReply,
        outcome: Outcome = Outcome.DONE,
        spans: Sequence[Span] = (),
        **more: Any,
    ) -> SettleReply:
        lease = (pulled.queue, pulled.epoch, pulled.lease)
        asked = bodies.Settle(topic, group, *lease, outcome, tuple(spans), **more)
        return self.run(lambda: self.broker.settle(self.now, session, asked))

    def park(
        self, session: int, topic: str, group: str, rows: int = 32, wait_us: int = 60 * SECOND, *,
        detached_us: int = 0,
    ) -> int:  # fmt: skip
        until_us = self.now + wait_us
        token = self.broker.park(session, topic, group, rows, 1 << 20, until_us, 0, detached_us)
        self.between()
        return token

    def drain(self, session: int, topic: str, group: str, rows: int = 32) -> list[int]:
        """Pull and acknowledge until nothing comes; return the offsets in the order they came."""
        got: list[int] = []
        while (pulled := self.pull(session, topic, group, rows)) is not None:
            got += offsets(pulled)
            self.settle(session, topic, group, pulled)
            self.commit()
        return got

    def progress(self, topic: str, group: str, queue: int = 0) -> Any:
        return self.broker.views.catalog.subscription(topic, group).queues[queue]

    # -- what was handed out ----------------------------------------------------------------------

    def _check(self, reply: PullReply) -> None:
        """Read every row that was handed out and compare its body with what was sent."""
        found = self.bodies(reply)
        named = [offset for start, stop, _, _ in reply.runs for offset in range(start, stop)]
        assert len(set(named)) == len(named), f"rows handed out twice at once: {reply.runs}"
        for offset in named:
            assert found[offset] == self.sent[reply.topic, reply.queue, offset]
        durable = self.broker.journal.durable
        for places in reply.places:
            assert all(places.visible_from(at) < durable for at in range(len(places.positions)))

    def bodies(self, reply: PullReply) -> dict[int, bytes]:
        """Return every row of the batches that the reply names, by offset."""
        found: dict[int, bytes] = {}
        decoded: set[bytes] = set()  # thousands of places may be in one record
        for places in reply.places:
            for at in range(len(places.positions)):
                record = waiting(partial(self.broker.store.at_place, places, at))
                header = bytes(record[:HEADER_BYTES])  # it holds the record's position
                if header in decoded:
                    continue
                decoded.add(header)
                if record[13] == Kind.MOVED:
                    content = moved.unpack(record[HEADER_BYTES:])
                    for piece in content.pieces:
                        bodies = Batch(piece.batch).bodies()
                        for row in range(piece.row_count):
                            found[piece.first_offset + row] = bodies[piece.row_start + row]
                    continue
                stored = messages.of_record(record)
                bodies = Batch(stored.batch).bodies()
                if stored.fulfils is not None:
                    self._note_fulfilled(stored)
                for offset in range(stored.first_offset, stored.first_offset + stored.count):
                    found[offset] = bodies[stored.row_of(offset)]
        return found

    def _note_fulfilled(self, stored: messages.Messages) -> None:
        """Note what rows that have come due should contain."""
        batch = Batch(stored.batch)
        for row in range(stored.count):
            offset = stored.first_offset + row
            sent = self.scheduled[batch.producer_id, batch.first_sequence + row]
            self.sent[stored.topic, stored.queue, offset] = sent


def waiting(ask: Callable[[], T]) -> T:
    """Ask until nothing blocks."""
    while True:
        try:
            return ask()
        except WouldBlock as blocked:
            blocked.job.run()


def offsets(reply: PullReply | None) -> list[int]:
    """Return the offsets handed out, in the order of the reply."""
    if reply is None:
        return []
    return [offset for start, stop, _, _ in reply.runs for offset in range(start, stop)]


def attempts(reply: PullReply) -> dict[int, tuple[int, int]]:
    """Return attempt and deliveries of every row handed out."""
    return {
        offset: (attempt, deliveries)
        for start, stop, attempt, deliveries in reply.runs
        for offset in range(start, stop)
    }


# -- states --------------------------------------------------------------------------------


def portrait(views: Views) -> dict[object, object]:
    """Return all that is not volatile, by object: what STATE would say, and what it derives."""
    found: dict[object, object] = {}
    with patch.object(Dedup, "cut", lambda self, begin: None):
        keys = list(views.objects.state_keys(0))
    for key in keys:
        if key.type in (DEDUP, FORGOTTEN, GLOBAL):
            continue
        if key.type == WRITER:
            idle = views.last_time_us - views.limits.writer_idle_us
            if views.writers.by_number[key.a].last_us < idle:
                continue  # swept away some time
        payload = views.objects.state_encode(key)
        if payload not in (b"", b"\x90"):  # gone, or an empty page
            found[key] = payload
    catalog = views.catalog
    found["next"] = (
        catalog.next_topic,
        catalog.next_group,
        views.sessions.next_number,
        views.writers.next_number,
        views.undecided.next_number,
        views.schedule.next_entry,
        views.numbers.next_reserve,
        views.numbers.begin,
    )
    views.schedule.pages.sweep(1 << 62)
    found["scheduled"] = views.schedule.rows, views.schedule.pages.by_segment
    found["due"] = {
        number: (one.rows, one.cursor)
        for number, one in views.schedule.topics.items()
        if one.rows or one.cursor
    }
    found["undecided"] = {
        number: (
            one.writer, one.batch_id, one.opened_us, list(one.batches()), one.rows, one.bytes
        )
        for number, one in views.undecided.by_number.items()
    }  # fmt: skip
    times = views.undecided.times
    found["due times"] = [(one, times.encode(*one)) for one in times.batches()], times.rows
    found["pinned"] = views.undecided._by_segment
    found["checked"] = {
        number: [getattr(one, name) for name in CheckedTransaction.__slots__ if name != "asked"]
        for number, one in views.checked.by_number.items()
    }
    found["checked pins"] = views.checked._by_segment
    found["parked"] = list(views.checked.parked)
    found["producer groups"] = dict(sorted(views.producer_groups.by_name.items()))
    found["floors"] = views.prepared_rows._gone
    for number, topic in catalog.topics.items():
        found["topic", number] = [(queue.next, queue.end, queue.first) for queue in topic.queues]
        assert catalog.by_name[topic.name] is topic
        for group, subscription in topic.subscriptions.items():
            assert topic.by_group[subscription.name] is subscription
            assert len(subscription.queues) == len(topic.queues)
            for queue, progress in enumerate(subscription.queues):
                assert views.progress[group, number, queue] is progress
    assert len(catalog.by_name) == len(catalog.topics)
    known = {
        (group, number, queue)
        for number, topic in catalog.topics.items()
        for group in topic.subscriptions
        for queue in range(len(topic.queues))
    }
    assert set(views.progress) == known
    for place, progress in views.progress.items():
        found["held", place] = (
            progress.cursor,
            progress.round,
            progress.given,
            list(progress.ahead),
            sorted(
                (lease.id, lease.session, lease.until_us, merge(lease.runs))
                for lease in progress.leases.values()
            ),
            merge(progress.ready.runs),
            [
                row
                for at in sorted(progress.failures.waiting)
                for row in progress.failures.waiting[at]
            ],
            [row for at in sorted(progress.failures.dead) for row in progress.failures.dead[at]],
            dict(sorted(progress.failures.history.items())),
            None if (lines := lines_of(progress)) is None else dict(sorted(lines.hash_of.items())),
        )
    dedup = views.dedup
    idle = views.last_time_us - views.limits.producer_idle_us
    alive = {number for number, one in dedup.producers.items() if one.last_us >= idle}
    found["dedup"] = [one for one in dedup.entries() if one[0] in alive]
    found["forgotten"] = {
        number: (dedup.producers[number].forgotten, dedup.producers[number].next)
        for number in sorted(alive)
    }
    found["horizon"] = dedup.horizon
    found["ids"] = {
        (topic, one): entry
        for topic, entries in dedup.ids.items()
        for one, entry in entries.items()
        if entry.position >= dedup.horizon
    }
    return found


def difference(ours: dict[object, object], theirs: dict[object, object]) -> list[str]:
    """Name what differs."""
    return [
        f"{key}: {ours.get(key)!r} is not {theirs.get(key)!r}"
        for key in sorted({*ours, *theirs}, key=str)
        if ours.get(key) != theirs.get(key)
    ]


def check_figures(broker: Broker) -> None:
    """The figures that are kept of all groups are what a walk over them finds."""
    views, catalog = broker.views, broker.views.catalog
    figures, all_ = views.figures, list(views.progress.values())
    figures.settle()
    assert not figures.changed
    assert [figures.leased, figures.ready, figures.waiting, figures.dead] == [
        sum(one.leased_rows for one in all_),
        sum(one.ready.rows for one in all_),
        sum(one.failures.waiting_rows for one in all_),
        sum(one.failures.dead_rows for one in all_),
    ]
    assert [
        figures.most_open_runs(),
        figures.most_failures(),
        figures.most_ready(),
        figures.most_parked(),
    ] == [
        max((one.open_runs() for one in all_), default=0),
        max((one.failures.waiting_rows + one.failures.dead_rows for one in all_), default=0),
        max((one.ready.rows for one in all_), default=0),
        max((one.ready.rows for one in all_ if one.mode.parks), default=0),
    ]
    assert set(figures.with_dead) == {one for one in all_ if one.failures.dead_rows}
    most = broker.limits.failures * 4 // 5
    assert set(figures.many_dead) == {one for one in all_ if one.failures.dead_rows > most}
    assert set(figures.with_held) == {one for one in all_ if one.failures.held_rows}
    for one in all_:
        waiting = [row for rows in one.failures.waiting.values() for row in rows]
        assert one.failures.held_rows == sum(row.when_us == HELD_US for row in waiting)
    leases: dict[int, dict[object, int]] = {}
    for one in all_:
        for lease in one.leases.values():
            held_by = leases.setdefault(lease.session, {})
            held_by[one] = held_by.get(one, 0) + 1
    assert figures.by_session == leases
    assert list(catalog.topic_names) == sorted(catalog.by_name)
    assert list(catalog.topic_numbers) == sorted(catalog.topics)
    assert list(catalog.group_numbers) == sorted(catalog.groups)
    assert list(catalog.app_names) == sorted(catalog.apps)
    for topic in catalog.topics.values():
        assert topic.group_names() == sorted(topic.by_group)


def check_due(broker: Broker) -> None:
    """What counts as a due retry is what the last search of its shard found, less what is gone."""
    for progress in broker.views.progress.values():
        shards = progress.failures.waiting.values()
        assert progress.failures.due_found == sum(rows.due for rows in shards)
        for rows in shards:
            assert rows.due == sum(row.when_us <= rows.due_us for row in rows)


def check_schedule(broker: Broker, now_us: int | None = None) -> None:
    """Each pending row comes due: it is in its topic's heap, or behind the horizon."""
    schedule = broker.views.schedule
    rows: dict[int, int] = {}
    segments: dict[int, int] = {}
    size = broker.journal.segment_size
    schedule.pages.sweep(1 << 62)
    for number, page in schedule.pages.by_number.items():
        assert page.left == sum(due != 0 for due in page.due) > 0
        for slot, due_us in enumerate(page.due):
            if not due_us:
                continue
            topic = schedule.topics[page.topic[slot]]
            rows[topic.topic] = rows.get(topic.topic, 0) + 1
            segment = page.position[slot] // size
            segments[segment] = segments.get(segment, 0) + 1
            key = due_us << 64 | number << 10 | slot
            assert key > topic.cursor
            if due_us < schedule.horizon_us:
                assert key in topic._near
            else:
                assert due_us >= page.earliest_us
    assert {number: one.rows for number, one in schedule.topics.items() if one.rows} == rows
    assert all(one.rows == sum(one.hours.values()) for one in schedule.topics.values())
    assert all(rows > 0 for one in schedule.topics.values() for rows in one.hours.values())
    assert schedule.rows == sum(rows.values())
    assert schedule.pages.by_segment == segments
    timers = {(when, owner) for when, _, kind, owner in broker.timers._heap if kind == Timer.FULFIL}
    for topic in schedule.topics.values():
        due = schedule.next_due_us(topic)
        if due is not None:
            assert (topic.armed_us, topic) in timers, "a scheduled row never comes due"
            assert topic.armed_us <= max(due, now_us or 0)
    loads = [when for when, _, kind, _ in broker.timers._heap if kind == Timer.LOAD]
    assert len(loads) == 1
    assert loads[0] <= schedule.horizon_us


def check(broker: Broker, now_us: int | None = None) -> None:
    """What holds of every state between two commands, at a time when ``tick`` has nothing to do."""
    check_figures(broker)
    check_due(broker)
    check_schedule(broker, now_us)
    sessions = set(broker.views.sessions.by_number)
    draining = {one.session for *_, one in broker.timers._heap if isinstance(one, Drain)}
    for key, progress in broker.views.progress.items():
        owed: dict[int, str] = {}

        def owe(offset: int, what: str, owed: dict[int, str] = owed, key: object = key) -> None:
            assert offset not in owed, f"{key}: {offset} is {owed[offset]} and {what}"
            owed[offset] = what

        leased = 0
        for id_, lease in progress.leases.items():
            assert lease.id == id_
            assert lease.runs, f"{key}: lease without rows"
            if id_ >> LEASE_BITS:
                known = sessions | draining
                assert lease.session in known, f"{key}: lease of {lease.session}, gone"
            else:
                assert id_ in broker.views.checked.by_number, f"{key}: lease of t-{id_:x}, decided"
            for start, stop, attempt, deliveries in lease.runs:
                assert start < stop
                assert attempt >= 1
                assert deliveries >= 1
                leased += stop - start
                for offset in range(start, stop):
                    owe(offset, "leased")
        assert progress.leased_rows == leased
        for start, stop, _, _ in progress.ready.runs:
            for offset in range(start, stop):
                owe(offset, "ready")
        assert progress.ready.rows == sum(stop - start for start, stop, _, _ in progress.ready.runs)
        waiting_rows = [row for rows in progress.failures.waiting.values() for row in rows]
        dead_rows = [row for rows in progress.failures.dead.values() for row in rows]
        for row in waiting_rows:
            owe(row.offset, "waiting")
        for row in dead_rows:
            owe(row.offset, "dead")
        assert progress.failures.waiting_rows == len(waiting_rows)
        assert progress.failures.dead_rows == len(dead_rows)
        for offset in owed:
            assert offset < progress.cursor or progress.ahead.covers(offset, offset + 1), (
                key,
                offset,
            )
        for start, _ in progress.ahead:
            assert start >= progress.cursor
        for offset in progress.failures.history:
            assert owed.get(offset) in ("leased", "ready"), (key, offset, owed.get(offset))
        _check_lines(progress, owed)
        _check_timers(broker, progress, now_us)


def lines_of(progress: Progress) -> Lines | None:
    """The lines of an ordered group queue; None: it is not ordered."""
    return progress.order.lines if isinstance(progress.order, KeyOrder) else None


def in_lines(progress: Progress) -> int:
    """How many rows stand in the lines of an ordered group queue."""
    lines = lines_of(progress)
    assert lines is not None
    return len(lines)


def _check_lines(progress: Any, owed: dict[int, str]) -> None:
    lines = lines_of(progress)
    if lines is None:
        return
    standing = {offset for offset, what in owed.items() if what != "dead"}
    assert set(lines.hash_of) == standing
    by_hash: dict[int, list[int]] = {}
    for offset in sorted(standing):
        by_hash.setdefault(lines.hash_of[offset], []).append(offset)
    assert {hash_: line.offsets for hash_, line in lines.by_hash.items()} == by_hash
    for hash_, line in lines.by_hash.items():
        in_hand = [offset for offset in line.offsets if owed[offset] == "leased"]
        assert line.leased == len(in_hand), (hash_, line.leased, in_hand)
        # Whoever is leased stands at the front: nothing of a key overtakes.
        if not line.leased and owed[line.offsets[0]] == "ready":
            assert (line.offsets[0], hash_) in lines._free, f"{line.offsets[0]} is never offered"


def _check_timers(broker: Broker, progress: Any, now_us: int | None) -> None:
    """Whatever will come to pass has a timer that is armed for it."""
    armed = {(when, kind.name) for when, _, kind, owner in broker.timers._heap if owner is progress}
    if progress.leases:
        first = min(lease.until_us for lease in progress.leases.values())
        if first < NEVER_US:  # the leases of transactions do not end by time
            assert progress.lease_armed_us <= max(first, broker.leases._kept_until_us)
            assert (progress.lease_armed_us, "LEASES") in armed, "leases that never end"
    for rows in progress.failures.waiting.values():
        for row in rows:
            if row.when_us >= HELD_US or row.offset in progress.failures._due_known:
                continue
            looked_at = any(
                when <= row.when_us and key == row.offset >> SHARD_BITS
                for when, key in progress.failures._due
            )
            lines = lines_of(progress)
            if lines is not None and not looked_at:
                assert now_us is None or row.when_us <= now_us
                hash_ = lines.hash_of[row.offset]
                line = lines.by_hash[hash_]
                if not line.leased and line.offsets[0] == row.offset:
                    assert (row.offset, hash_) in lines._free, f"{row} is never offered"
                continue
            assert looked_at, f"{row} is never looked at"
            if now_us is not None and row.when_us > now_us:
                assert progress.due_armed_us <= row.when_us
                assert (progress.due_armed_us, "DUE") in armed, f"{row} never comes due"


def reopened(world: World, *, options: Options | None = None) -> Broker:
    """Open what a crash at this moment would leave if everything written were kept."""
    world.broker.journal.flush()
    disk = MemoryDisk(world.disk.image())
    return open_broker(
        disk,
        wall_us=world.now,
        chance=random.Random(9),
        options=options or world.options,
    ).broker


def same_after_restart(world: World, note: str = "") -> None:
    """Opening the disk gives the same state as living through it."""
    check(world.broker, world.now)
    other = reopened(world)
    check(other, world.now)
    differs = difference(portrait(world.broker.views), portrait(other.views))
    assert not differs, "\n".join([note, *differs])


Scenario = Callable[[World], None]


def explore(
    scenario: Scenario,
    limits: Limits | None = None,
    *,
    paces: Sequence[tuple[int, int]] = ((1, 1), (3, 1), (1, 2), (2, 3), (1, 4)),
    step: int = 1,
    segment_bytes: int = 1 << 20,
    any_order: bool = False,
) -> World:
    """Run a scenario with sets written from every moment on; see the module's text.

    Reads that block must make no difference to the journal, save (``any_order``) in which order
    groups are served that did not have to wait for one another.
    """
    plain = World(limits, segment_bytes=segment_bytes)
    scenario(plain)
    same_after_restart(plain, "no set at all")
    for seed in (1, 2):
        flaky = World(limits, flaky=seed, segment_bytes=segment_bytes)
        scenario(flaky)
        flaky.broker.journal.flush()
        plain.broker.journal.flush()
        same_after_restart(flaky, "reads that block")
        assert any_order or flaky.disk.image() == plain.disk.image(), (
            f"reads that block made a difference: {seed}"
        )
    expected = portrait(plain.broker.views)
    for budget, stride in paces:
        for begin in range(1, plain.moment + 1, step):
            world = World(
                limits,
                state_from=begin,
                budget=budget,
                stride=stride,
                segment_bytes=segment_bytes,
            )
            scenario(world)
            note = f"sets from moment {begin}, {budget} objects every {stride}, {world.sets} whole"
            same_after_restart(world, note)
            if world.broker.writer.active:
                world.broker.writer.step(world.now, lambda: True)
                same_after_restart(world, note + ", then ended")
            assert set(portrait(world.broker.views)) == set(expected)
    return plain
