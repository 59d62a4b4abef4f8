"""Writers of transactions: they prepare, commit, give up, lose answers, and begin again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ternmq.broker.gate.replies import PrepareReply, Reply, ResolveReply
from ternmq.model.errors import (
    Busy,
    DiskFull,
    ResendTooOld,
    TernMQError,
    TransactionConflict,
    TransactionDecided,
    TransactionTooOld,
    UnknownTopic,
    UnknownTransaction,
)
from ternmq.record.batch.batch import Row, encode, topic_seed
from tests.sim.history import Asked, Name, Tried
from tests.sim.tape import Violation

if TYPE_CHECKING:
    from tests.sim.world import World


class Writer:
    """Runs one transaction after another under one name, as a stream does."""

    def __init__(
        self,
        world: World,
        topics: tuple[str, ...],
        name: str,
        number: int,
        *,
        every_us: int = 4000,
        parts: int = 3,
        rows: int = 3,
        body: int = 60,
        keys: int = 0,
        leave: float = 0.08,
        dawdle: float = 0.0,
        due: float = 0.0,
        brief: float = 0.0,
        delays_us: Sequence[int] = (-5_000, 10_000, 50_000, 200_000),
    ) -> None:
        self.world = world
        self.topics = topics
        self.name = name
        self.number = number
        self.every_us = every_us
        self.parts = parts
        self.rows = rows
        self.body = body
        self.keys = keys
        self.leave = leave
        self.dawdle = dawdle
        self.due = due
        self.brief = brief
        self.delays_us = delays_us
        self.sequence = 0
        self.batch_id = 0
        self.planned: list[Tried] = []
        """Batches of this transaction that no answer has come to."""
        self.ids: dict[int, Tried] = {}
        """Of those that one has."""
        self.decided = False
        """A commit of this transaction is out, or was answered."""
        self.old: list[Name] = []
        world.restart_hooks.append(self.restarted)

    def restarted(self) -> None:
        """The broker is back: answers that were out never come."""
        self._again()

    def _again(self) -> None:
        self.world.after(1 + self.world.chance.randrange(2 * self.every_us), self._act)

    @property
    def _name(self) -> Name:
        return self.name, self.batch_id

    def _asked(self, name: Name) -> Asked:
        return self.world.history.named.setdefault(name, Asked())

    def _act(self) -> None:
        self._again()
        world, chance = self.world, self.world.chance
        if world.calm or (self.ids and chance.random() < self.dawdle):
            return
        draw = chance.random()
        if self.old and draw < 0.12:
            self._ask_again(chance.choice(self.old[-2:]))
        elif self.decided:
            self._commit()  # until an answer comes
        elif not self.planned and not self.ids and draw < 0.75:
            self._plan()
        elif draw < self.leave:
            self._give_up(draw < self.leave / 2)
        elif self.planned:
            for tried in list(self.planned)[: chance.randint(1, 2)]:
                self._prepare(tried)
        else:
            self._begin_commit()

    # -- one transaction --------------------------------------------------------------------------

    def _plan(self) -> None:
        for part in range(self.world.chance.randint(1, self.parts)):
            for attempt in range(1 + (self.world.chance.random() < 0.25)):
                self.planned.append(self._make(f"{part}/{attempt}"))

    def _make(self, part: str) -> Tried:
        world, chance = self.world, self.world.chance
        topic = chance.choice(self.topics)
        rows = [
            Row(
                body=b"%d:%d:" % (self.number, self.sequence + at)
                + b"." * chance.randrange(self.body),
                key=f"key{chance.randrange(4)}" if chance.random() < 0.3 else "",
                ordering_key=f"o{chance.randrange(self.keys)}" if self.keys else "",
            )
            for at in range(chance.randint(1, self.rows))
        ]
        found = world.broker.views.catalog.by_name.get(topic)
        if found is not None and found.spec.levels > 1:
            priority = chance.randrange(found.spec.levels)
            rows = [replace(row, priority=priority) for row in rows]
        if self.due and chance.random() < self.due:
            now = world.now_us()
            rows = [replace(row, due_us=now + chance.choice(self.delays_us)) for row in rows]
        if self.brief and chance.random() < self.brief:
            after_us = chance.choice((10_000, 100_000, 1_000_000))
            expiry_us = max(world.now_us(), *[row.due_us for row in rows]) + after_us
            rows = [replace(row, expiry_us=expiry_us) for row in rows]
        batch = encode(
            rows,
            topic_seed=topic_seed(topic),
            producer_id=self.number,
            first_sequence=self.sequence,
            born_us=world.monotonic_us,
            keyed=self.keys > 0,
        )
        self.sequence += len(rows)
        tried = Tried(topic, self.number, batch, rows, world.monotonic_us)
        tried.transaction = (*self._name, part)
        world.history.tried[batch] = tried
        return tried

    def _prepare(self, tried: Tried) -> None:
        world = self.world
        assert tried.transaction is not None
        writer, batch_id, part = tried.transaction
        fresh = not tried.sent
        tried.sent += 1
        reply = world.command(
            lambda: world.broker.prepare(
                world.now_us(), "sim", tried.topic, tried.batch, writer, batch_id, part
            )
        )
        if isinstance(reply, TernMQError):
            world.reached(f"prepare refused {type(reply).__name__}")
            if isinstance(reply, TransactionDecided) and self._name in self._committed():
                raise Violation(f"{self._name} is committed; its writer still prepares")
            if isinstance(reply, ResendTooOld) and not world.remembers(tried.time_us):
                self.planned.remove(tried)  # its answer was lost too long ago
                return
            if not isinstance(reply, DiskFull | Busy | UnknownTopic):
                raise Violation(f"a good prepare was refused: {reply!r}")
            tried.refused = tried.refused or fresh
            return
        tried.refused = False
        if reply.duplicate:
            world.reached("prepared again")
        name = self._name
        if world.chance.random() < 0.85:
            world.hold(reply, lambda told: self._was_prepared(tried, name, told))

    def _was_prepared(self, tried: Tried, name: Name, reply: Reply) -> None:
        assert isinstance(reply, PrepareReply)
        world = self.world
        world.history.rely(world.disk.at, reply.position)
        world.tell("prepared", reply.prepared)
        other = tried.answered not in (None, (0, reply.prepared, reply.count))
        if other and world.remembers(tried.time_us):
            raise Violation(f"a batch prepared again got {reply.prepared}: {tried.answered}")
        tried.answered = (0, reply.prepared, reply.count)
        if name == self._name and not self.decided:
            if tried in self.planned:
                self.planned.remove(tried)
            self.ids[reply.prepared] = tried

    def _begin_commit(self) -> None:
        """List one attempt of each part, in some order; empty transactions, too."""
        chance = self.world.chance
        attempts: dict[str, list[int]] = {}
        for id_, tried in self.ids.items():
            assert tried.transaction is not None
            attempts.setdefault(tried.transaction[2].partition("/")[0], []).append(id_)
        ids = [chance.choice(found) for found in attempts.values()]
        chance.shuffle(ids)
        self.commit = tuple(ids), chance.getrandbits(60)
        self.decided = True
        self._commit()

    def _commit(self) -> None:
        world = self.world
        ids, digest = self.commit
        name = self._name
        asked = self._asked(name)
        asked.commits.append(self.commit)
        reply = world.command(
            lambda: world.broker.commit_transaction(world.now_us(), "sim", *name, ids, digest)
        )
        if isinstance(reply, TernMQError):
            world.reached(f"commit refused {type(reply).__name__}")
            if isinstance(reply, TransactionDecided | UnknownTransaction | UnknownTopic):
                if name in self._committed():
                    raise Violation(f"{name} is committed, a repeat was refused: {reply!r}")
                self._run_again()
            elif not isinstance(reply, DiskFull | Busy):
                raise Violation(f"a good commit was refused: {reply!r}")
            return
        self._check_repeat(name, reply)
        if world.chance.random() < 0.75:
            world.hold(reply, lambda told: self._was_committed(name, digest, told))

    def _check_repeat(self, name: Name, reply: ResolveReply) -> None:
        """What is told *repeated* is committed, and only that."""
        before = self._asked(name).told is not None
        if before and not reply.repeated:
            raise Violation(f"{name} was answered committed, and is committed once more")
        if reply.repeated:
            self.world.reached("commit repeated")

    def _was_committed(self, name: Name, digest: int, reply: Reply) -> None:
        assert isinstance(reply, ResolveReply)
        world = self.world
        world.history.rely(world.disk.at, reply.position)
        world.tell("committed", name, reply.rows)
        asked = self._asked(name)
        if asked.told is not None and asked.told != (digest, reply.rows):
            raise Violation(f"{name} was answered {asked.told}, now {digest, reply.rows}")
        asked.told = digest, reply.rows
        asked.end = reply.position
        if name == self._name:
            self._next()
            self.old.append(name)

    def _next(self) -> None:
        self.batch_id += 1
        self.planned = []
        self.ids = {}
        self.decided = False

    def _run_again(self) -> None:
        """The transaction is gone, as after its time limit: its batches are made anew."""
        self.world.reached("transaction run again")
        self.planned = []
        self.ids = {}
        self.decided = False

    def _give_up(self, abort: bool) -> None:
        """Abort, or leave it to the time limit; its number is used again, or not."""
        world = self.world
        if abort:
            name = self._name
            self._asked(name).aborts += 1
            reply = world.command(
                lambda: world.broker.abort_transaction(world.now_us(), "sim", *name)
            )
            if isinstance(reply, TernMQError):
                if not isinstance(reply, DiskFull | Busy):
                    raise Violation(f"an abort was refused: {reply!r}")
                return
            world.reached("abort")
            world.hold(reply, lambda told: world.history.rely(world.disk.at, told.position))
            if world.chance.random() < 0.6:
                self._run_again()
                return
        self._next()

    # -- what is over -----------------------------------------------------------------------------

    def _ask_again(self, name: Name) -> None:
        """Repeat, contradict or abort what was answered committed."""
        world, chance = self.world, self.world.chance
        asked = self._asked(name)
        if asked.told is None:
            return
        digest, rows = asked.told
        draw = chance.random()
        if draw < 0.4:
            asked.commits.append(((), digest))
            reply = world.command(
                lambda: world.broker.commit_transaction(world.now_us(), "sim", *name, (), digest)
            )
            if self._forgotten(name, reply):
                return
            if isinstance(reply, TernMQError) or not reply.repeated or reply.rows != rows:
                raise Violation(f"{name} is committed; a repeat was answered {reply!r}")
            world.reached("commit repeated")
            world.hold(reply, lambda told: world.history.rely(world.disk.at, told.position))
        elif draw < 0.7:
            reply = world.command(
                lambda: world.broker.commit_transaction(
                    world.now_us(), "sim", *name, (), digest ^ 1
                )
            )
            if self._forgotten(name, reply):
                return
            if not isinstance(reply, TransactionConflict):
                raise Violation(f"{name} with another digest was answered {reply!r}")
            world.reached("commit with another digest")
        else:
            asked.aborts += 1
            gone = world.command(
                lambda: world.broker.abort_transaction(world.now_us(), "sim", *name)
            )
            if self._forgotten(name, gone):
                return
            if not isinstance(gone, TransactionDecided):
                raise Violation(f"{name} is committed; its abort was answered {gone!r}")
            world.reached("abort after a commit")

    def _forgotten(self, name: Name, reply: object) -> bool:
        """Return whether a refusal says that the decision is forgotten, as all but the highest may.

        Raises:
            Violation: it says so of the highest.
        """
        if not isinstance(reply, TransactionTooOld):
            return False
        if name[1] == max(batch for writer, batch in self._committed() if writer == name[0]):
            raise Violation(f"{name} is the highest that is committed, and is forgotten")
        self.world.reached("decision forgotten")
        return True

    def _committed(self) -> dict[Name, object]:
        found: dict[Name, object] = dict(self.world.reference.decided.committed)
        return found
