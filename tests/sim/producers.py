"""Producers: they send, send the same bytes again, and check every receipt they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from ternmq.broker.gate.replies import Reply, SendReply
from ternmq.model.errors import (
    Busy,
    DiskFull,
    IdConflict,
    InvalidBatch,
    ResendTooOld,
    TernMQError,
    UnknownTopic,
)
from ternmq.model.specs import Durability
from ternmq.record.batch.batch import Batch, Compression, Row, encode, topic_seed
from tests.sim.history import Stored, Tried
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

_KIND_AT: Final = 13
LEASE_BITS: Final = 40


class Producer:
    """Sends batches to one topic; sends the same bytes again when no answer came, and at times when
    one did."""

    def __init__(
        self,
        world: World,
        topic: str,
        number: int,
        *,
        every_us: int = 3000,
        rows: int = 3,
        body: int = 60,
        keys: int = 0,
        tags: tuple[str, ...] = (),
        headers: Callable[[Random], dict[str, str]] | None = None,
        ids: int = 0,
        resend_us: int = 1_000_000,
        compression: Compression = Compression.NONE,
    ) -> None:
        self.world = world
        self.topic = topic
        self.number = number
        self.seed = topic_seed(topic)
        self.every_us = every_us
        self.rows = rows
        self.body = body
        self.keys = keys
        self.tags = tags
        self.headers = headers
        self.ids = ids
        self.resend_us = resend_us
        self.compression = compression
        self.sequence = 0
        self.unanswered: dict[int, Tried] = {}
        self.recent: list[Tried] = []
        self.left = 1 << 30
        world.restart_hooks.append(self.restarted)

    def restarted(self) -> None:
        """The broker is back: nothing that was out will be answered."""
        self._again()
        for tried in list(self.unanswered.values()):
            if self.world.chance.random() < 0.8:
                self.world.after(
                    self.world.chance.randrange(2000),
                    lambda one=tried: self._send(one),  # type: ignore[misc]
                )

    def _again(self) -> None:
        self.world.after(1 + self.world.chance.randrange(2 * self.every_us), self._act)

    def _act(self) -> None:
        chance = self.world.chance
        if self.left > 0 and not self.world.calm:
            self.left -= 1
            count = 1 if chance.random() < 0.1 else chance.randint(1, 3)
            for _ in range(count):
                draw = chance.random()
                if self.recent and draw < 0.06:
                    self._send(chance.choice(self.recent[-8:]))
                elif self.recent and draw < 0.09:
                    self._conflict(chance.choice(self.recent[-8:]))
                else:
                    self._send(self._make())
        self._again()

    def send_one(self) -> None:
        """Send a new batch now."""
        self._send(self._make())

    def _make(self) -> Tried:
        world = self.world
        rows = self._made_rows()
        batch = encode(
            rows,
            topic_seed=self.seed,
            producer_id=self.number,
            first_sequence=self.sequence,
            born_us=world.monotonic_us,
            keyed=self.keys > 0,
            compression=self.compression,
        )
        if Batch(batch).compression is not Compression.NONE:
            world.reached("compressed batch")
        tried = Tried(self.topic, self.number, batch, rows, world.monotonic_us)
        world.history.tried[batch] = tried
        self.unanswered[self.sequence] = tried
        self.sequence += len(rows)
        return tried

    def _made_rows(self) -> list[Row]:
        """Return the rows of the next batch."""
        chance = self.world.chance
        rows: list[Row] = []
        for _ in range(chance.randint(1, self.rows)):
            number = self.sequence + len(rows)
            body = b"%d:%d:" % (self.number, number) + b"." * chance.randrange(self.body)
            given = ""
            if self.ids and chance.random() < 0.7:
                given = f"id{chance.randrange(self.ids)}"
                if any(row.application_id == given for row in rows):
                    given = ""
                elif chance.random() < 0.9:
                    body = b"same:" + given.encode()
            rows.append(
                Row(
                    body=body,
                    key=f"key{chance.randrange(4)}" if chance.random() < 0.3 else "",
                    ordering_key=f"o{chance.randrange(self.keys)}" if self.keys else "",
                    tag=chance.choice(self.tags) if self.tags else "",
                    headers=self.headers(chance) if self.headers else {},
                    application_id=given,
                )
            )
        return rows

    def _conflict(self, tried: Tried) -> None:
        """Send other content under sequences that are used: it must be refused."""
        world = self.world
        if tried.batch not in world.reference.stored:
            return  # lost with a power cut, or left out: nothing to conflict with
        if not world.remembers(tried.time_us):
            return  # it may be forgotten
        rows = [replace(row, body=b"other " + row.body) for row in tried.rows]
        batch = encode(
            rows,
            topic_seed=self.seed,
            producer_id=self.number,
            first_sequence=self._sequence(tried),
            born_us=world.monotonic_us,
            keyed=self.keys > 0,
        )
        reply = world.command(lambda: world.broker.send(world.now_us(), self.topic, batch))
        if isinstance(reply, IdConflict):
            world.reached("id conflict")
        elif not isinstance(reply, TernMQError):
            raise Violation("other content under a used sequence was answered with a receipt")

    def _send(self, tried: Tried) -> None:
        world = self.world
        sequence = self._sequence(tried)
        gone = tried.time_us and not world.remembers(tried.time_us)  # broker time leapt at a start
        if gone or world.monotonic_us - tried.born_us > self.resend_us:
            self.unanswered.pop(sequence, None)
            return
        fresh = not tried.sent
        tried.sent += 1
        again = tried.answered is not None
        reply = world.command(
            lambda: world.broker.send(world.now_us(), self.topic, tried.batch, tried.queue)
        )
        if isinstance(reply, TernMQError):
            self._refused(tried, sequence, reply, fresh=fresh, again=again)
            return
        tried.refused = False
        if reply.duplicate:
            world.reached("dedup hit")
            if tried.time_us and world.reign.kept_records and not again:
                world.reached("dedup hit of an unanswered batch")
        elif (
            again
            and not (reply.rests and tried.reign != world.reigns)
            and world.remembers(tried.time_us)
        ):
            raise Violation("a batch that was answered is stored again")
        tried.reign = world.reigns
        self._check_scheduled(tried, reply)
        world.hold(reply, lambda told: self._answered(tried, sequence, told))

    @staticmethod
    def _sequence(tried: Tried) -> int:
        return tried.first_sequence

    def _check_scheduled(self, tried: Tried, reply: SendReply) -> None:
        """A batch is scheduled if a row of it is due later, and stays so for whoever asks again."""
        due_us = max(row.due_us for row in tried.rows)
        if not reply.duplicate:
            if reply.scheduled != (due_us > self.world.now_us()):
                raise Violation(f"due at {due_us}, and scheduled is {reply.scheduled}")
        elif tried.scheduled not in (None, reply.scheduled) and not self._gone(tried):
            raise Violation(f"scheduled was {tried.scheduled}, a resend is told otherwise")
        elif reply.scheduled and reply.count:
            self.world.reached("dedup hit of a scheduled batch")
        if reply.scheduled and reply.first_offset is not None:
            raise Violation(f"a scheduled batch has offset {reply.first_offset}")

    def _gone(self, tried: Tried) -> bool:
        """Return whether the record of a batch went with its segment."""
        world = self.world
        return world.reference.stored.get(tried.batch, 0) < world.broker.journal.first

    def _refused(
        self, tried: Tried, sequence: int, error: TernMQError, *, fresh: bool, again: bool
    ) -> None:
        world = self.world
        world.tell("refused", type(error).__name__)
        world.reached(f"send refused {type(error).__name__}")
        if isinstance(error, UnknownTopic):
            self.unanswered.pop(sequence, None)
            tried.refused = tried.refused or fresh
            return
        if isinstance(error, IdConflict | ResendTooOld):
            raise Violation(f"an honest send was refused: {error}")
        if isinstance(error, InvalidBatch) and tried.time_us:
            self.unanswered.pop(sequence, None)  # the topic is another one of the same name
            return
        if not isinstance(error, DiskFull | Busy):
            raise Violation(f"a good batch was refused: {error!r}")
        topic = world.broker.views.catalog.by_name[self.topic]
        lost = topic.spec.durability is Durability.FAST and tried.reign != world.reigns
        if again and not lost:  # a crash may take a fast batch that was answered
            raise Violation(f"a batch that is stored was refused: {error!r}")
        tried.refused = tried.refused or fresh
        if tried.refused:
            self.unanswered.pop(sequence, None)

    def _answered(self, tried: Tried, sequence: int, reply: Reply) -> None:
        assert isinstance(reply, SendReply)
        world = self.world
        self.unanswered.pop(sequence, None)
        self.recent = [*self.recent[-20:], tried]
        if reply.count:
            tried.scheduled = reply.scheduled
        world.tell("sent", sequence, reply.queue, reply.first_offset)
        if tried.rows[0].application_id or self.ids:
            self._answered_rows(tried, reply)
        elif reply.count != len(tried.rows):
            raise Violation(f"{reply.count} rows of {len(tried.rows)} were stored")
        if reply.rests == 0:
            world.history.rely(world.disk.at, reply.position)
        else:
            world.reached("fast send")
        if reply.count:
            world.history.receipt(tried, reply.queue, reply.first_offset, reply.count)
        if reply.first_offset is not None and reply.count:
            self._check_stored(tried, reply)

    def _answered_rows(self, tried: Tried, reply: SendReply) -> None:
        if reply.rows:
            self.world.reached("given id left out")
        left_out = {one.row for one in reply.rows}
        if reply.count + len(left_out) != len(tried.rows):
            raise Violation(f"{reply.count} rows stored, {len(left_out)} left out")
        for one in reply.rows:
            if one.conflict:
                self.world.reached("given id conflict")
            elif one.offset is not None:
                rows = self._rows(reply, one.queue)
                if not rows:
                    continue  # the topic was deleted meanwhile
                first, again = rows[one.offset].row(), tried.rows[one.row]
                if first.application_id != again.application_id:
                    raise Violation("a left-out row was given another message's receipt")
                if first.body != again.body:
                    raise Violation("another body under a known id was taken for a duplicate")

    def _rows(self, reply: SendReply, queue: int | None) -> list[Stored]:
        topic = self.world.reference.topics.get(reply.topic)
        return [] if topic is None or queue is None else topic.queues[queue]

    def _check_stored(self, tried: Tried, reply: SendReply) -> None:
        topic = self.world.reference.topics.get(reply.topic)
        if topic is None:
            return
        assert reply.first_offset is not None
        rows = topic.queues[reply.queue][reply.first_offset : reply.first_offset + reply.count]
        if len(rows) != reply.count:
            raise Violation(f"a receipt names offset {reply.first_offset}, which is not there")
        for at, stored in enumerate(rows):
            if stored.tried is not tried:
                raise Violation(f"offset {reply.first_offset + at} holds another batch")
            if stored.end > reply.position:
                raise Violation("a receipt rests on less than its own record")
            self.world.history.same_content(
                reply.topic, reply.queue, reply.first_offset + at, tried.batch, stored.at
            )
