"""Opens what a worker left behind, drains it, and compares it with the history.

``python -m tests.fault.verify`` reads one JSON request a line and writes one JSON verdict a line::

    {"folder": ..., "history": ..., "power": bool}  ->  {"problems": [...], "sent": ..., ...}

A problem is one sentence that begins with its kind: lost, phantom, duplicate, redelivered, moved,
order, dead, early, open. ``power``: the power was cut, so what was answered before its sync
(topics of durability fast) may be gone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NoReturn

from ternmq.broker.gate.replies import PullReply
from ternmq.broker.group.history import failure_entries
from ternmq.broker.group.progress import Progress
from ternmq.broker.start import Options
from ternmq.journal.disk.port import Disk
from ternmq.journal.disk.real import RealDisk
from ternmq.model.errors import JournalError, JournalFull
from ternmq.model.specs import Durability
from ternmq.model.types import MINUTE_US
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Cause, Outcome
from ternmq.wire import bodies
from tests.fault import history
from tests.fault.history import Line
from tests.fault.messages import (
    ATTEMPTS,
    FIRST_DELAY_US,
    GROUPS,
    JITTER,
    LEDGER,
    TOPICS,
    Attempt,
    Identity,
    identity_of,
    ordering_key,
)
from tests.fault.shell import Shell
from tests.fault.traffic import attempt_of

Place = tuple[str, int, int]
"""Topic, queue, offset."""
Owner = tuple[str, str, int, int]
"""Group, topic, queue, offset."""
STEPS: Final = 200
MOST_PROBLEMS: Final = 20
MOST_LISTED: Final = 1000


@dataclass(slots=True)
class HandOut:
    """A row in a consumer's hand."""

    owner: Owner
    lease: tuple[int, int]
    attempt: int
    deliveries: int
    identity: Identity | None
    suspect: bool
    key: str
    time_us: int


@dataclass(slots=True)
class Settle:
    """A settle as tried, and as answered."""

    outcome: Outcome
    offsets: list[int]
    time_us: int


@dataclass(slots=True)
class Past:
    """What the history says."""

    tried: dict[Identity, Attempt] = field(default_factory=dict)
    refused: set[Identity] = field(default_factory=set)
    unsure: set[Identity] = field(default_factory=set)
    answered: dict[Identity, Line] = field(default_factory=dict)
    places: dict[Place, Identity] = field(default_factory=dict)
    maybe_done: set[Owner] = field(default_factory=set)
    maybe_rejected: set[Owner] = field(default_factory=set)
    done: set[Owner] = field(default_factory=set)
    dead: set[Owner] = field(default_factory=set)
    settles: dict[int, tuple[str, str, int, Settle]] = field(default_factory=dict)


class Died(NamedTuple):
    """A dead letter: what, after how many attempts, how and when its last failure went."""

    identity: Identity | None
    attempt: int
    outcome: int
    cause: int
    time_us: int


@dataclass(slots=True)
class Left:
    """What the folder held."""

    first: dict[tuple[str, int], int] = field(default_factory=dict)
    stored: dict[Place, Identity | None] = field(default_factory=dict)
    out: list[HandOut] = field(default_factory=list)
    dead: dict[Owner, Died] = field(default_factory=dict)


class Verifier:
    """Compares one folder with its history."""

    def __init__(self, lines: list[Line], *, power: bool) -> None:
        self.problems: list[str] = []
        self.repeats = 0
        self._lines = lines
        self._power = power
        self._past = Past()
        self._last: dict[Owner, HandOut] = {}
        self._retry: dict[Owner, tuple[int, int]] = {}
        self._leased: dict[tuple[str, str, int, str], list[tuple[tuple[int, int], int]]] = {}
        self._key_rows: dict[tuple[str, int, str], list[int]] = {}
        self._over: set[Owner] = set()
        self._before_its_turn: list[tuple[Owner, HandOut]] = []
        """A row that nobody was seen to be done with, and the later one of its key that came."""

    def say(self, problem: str) -> None:
        """Note a violation."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)

    # -- the history ------------------------------------------------------------------------------

    def read_history(self) -> None:
        """Take in all lines, checking hand-outs against what was answered before them."""
        for line in self._lines:
            op = line["op"]
            if op in ("try", "sent", "refused"):
                self._read_send(op, line)
            elif op == "out":
                for offset, attempt, deliveries, identity, suspect, key in line["rows"]:
                    owner = (line["g"], line["T"], line["q"], offset)
                    one = None if identity is None else (identity[0], identity[1])
                    self._hand_out(
                        HandOut(
                            owner,
                            (line["e"], line["l"]),
                            attempt,
                            deliveries,
                            one,
                            suspect,
                            key,
                            line["t"],
                        )
                    )
            elif op == "settle":
                self._read_settle(line)
            elif op == "settled":
                self._read_settled(line)

    def _read_send(self, op: str, line: Line) -> None:
        past = self._past
        attempt = attempt_of(line)
        identities = attempt.identities()
        if op == "try":
            if attempt.again is None:
                past.unsure.update(past.tried.keys() & set(identities) - past.refused)
                past.tried.update(dict.fromkeys(identities, attempt))
                past.refused.difference_update(identities)
            return
        if op == "refused":
            # Refusing a resend says nothing of the first try, which had no answer.
            if attempt.again is None and not past.answered.keys() & set(identities):
                past.refused.update(set(identities) - past.unsure)
            return
        left = {row: (offset, conflict) for row, offset, conflict in line["left"]}
        if any(conflict for _, conflict in left.values()):
            self.say(f"duplicate: a resend of {identities} was called a conflict")
        fast = TOPICS[attempt.topic].durability is Durability.FAST
        offset = line["first"]
        for row, identity in enumerate(identities):
            past.answered.setdefault(identity, line)
            if row in left:
                self._place((attempt.topic, line["q"], left[row][0]), identity, "receipt")
            elif offset is not None:
                self._place((attempt.topic, line["q"], offset), identity, "receipt")
                offset += 1
            elif not fast:
                self.say(f"moved: the receipt of {identity} names no offset")

    def _place(self, place: Place, identity: Identity | None, where: str) -> None:
        """Note that a message was seen at a place: always the same one."""
        if identity is None:
            self.say(f"phantom: {where}: nobody sent what stands at {place}")
            return
        known = self._past.places.setdefault(place, identity)
        if known != identity:
            self.say(f"moved: {where}: {place} is {identity}, was {known}")
        attempt = self._past.tried.get(identity)
        if attempt is None:
            self.say(f"phantom: {where}: {identity} at {place} was never tried")
        elif attempt.topic != place[0]:
            self.say(f"moved: {where}: {identity} of {attempt.topic} stands at {place}")
        if identity in self._past.refused:
            self.say(f"phantom: {where}: {identity} at {place} had been refused")

    def _read_settle(self, line: Line) -> None:
        past = self._past
        settle = Settle(Outcome[line["o"]], line["rows"], line["t"])
        past.settles[line["n"]] = (line["g"], line["T"], line["q"], settle)
        for offset in settle.offsets:
            owner = (line["g"], line["T"], line["q"], offset)
            if settle.outcome is Outcome.DONE:
                past.maybe_done.add(owner)
            elif settle.outcome is Outcome.DEAD:
                past.maybe_rejected.add(owner)

    def _read_settled(self, line: Line) -> None:
        past = self._past
        group, topic, queue, settle = past.settles[line["n"]]
        for start, stop, attempt, _ in line["runs"]:
            for offset in range(start, stop):
                owner = (group, topic, queue, offset)
                if offset not in settle.offsets:
                    self.say(f"moved: settle {line['n']} took {owner}, which it did not name")
                if settle.outcome is Outcome.DONE:
                    past.done.add(owner)
                elif settle.outcome is Outcome.DEAD or (
                    settle.outcome is Outcome.RETRY and attempt >= ATTEMPTS
                ):
                    past.dead.add(owner)
                elif settle.outcome is Outcome.RETRY:
                    self._retry[owner] = (attempt, settle.time_us)

    # -- hand-outs --------------------------------------------------------------------------------

    def _hand_out(self, one: HandOut) -> None:
        """Check a hand-out, of the history or of the drain, against all that came before."""
        owner = one.owner
        group, topic, queue, offset = owner
        self._place((topic, queue, offset), one.identity, f"hand-out to {group}")
        if owner in self._past.done:
            self.say(f"redelivered: {owner} was acknowledged, and comes again")
        if owner in self._past.dead:
            self.say(f"dead: {owner} is a dead letter, and comes again")
        before = self._last.get(owner)
        if before is not None:
            self.repeats += 1
            if one.deliveries <= 1 and not one.suspect:
                self.say(f"duplicate: {owner} comes again without saying so: {one}")
        if one.attempt > ATTEMPTS:
            self.say(f"dead: {owner} comes for the {one.attempt}th time of {ATTEMPTS}")
        retried = self._retry.pop(owner, None)
        if retried is not None:
            attempt, when_us = retried
            if one.attempt <= attempt:
                self.say(f"dead: attempt {one.attempt} of {owner} after {attempt} had failed")
            if one.time_us < when_us + FIRST_DELAY_US * (1 - JITTER):
                self.say(f"early: {owner} comes {one.time_us - when_us} us after it had failed")
        self._last[owner] = one
        if topic == LEDGER:
            self._check_order(one)

    def _check_order(self, one: HandOut) -> None:
        """A row of a key comes when all before it are over, or are in the same hand with it."""
        group, topic, queue, offset = one.owner
        key = (group, topic, queue, one.key)
        attempt = None if one.identity is None else self._past.tried.get(one.identity)
        if attempt is not None and one.key != ordering_key(attempt):
            self.say(f"moved: {one.owner} has key {one.key}")
        rows = self._key_rows.setdefault((topic, queue, one.key), [])
        mine = self._leased.setdefault(key, [])
        mine[:] = [held for held in mine if held[0] == one.lease]
        here = {held for _, held in mine}
        for earlier in rows:
            if earlier >= offset:
                break
            owner = (group, topic, queue, earlier)
            past = self._past
            over = owner in past.maybe_done or owner in past.maybe_rejected or owner in self._over
            if not over and earlier not in here and owner not in past.dead:
                self._before_its_turn.append((owner, one))
        mine.append((one.lease, offset))

    def learn_keys(self, stored: Iterable[tuple[Place, Row]]) -> None:
        """Learn which offsets each key has: of what is stored, and of what was handed out."""
        rows: dict[tuple[str, int, str], set[int]] = {}
        for (topic, queue, offset), row in stored:
            if topic == LEDGER:
                rows.setdefault((topic, queue, row.ordering_key), set()).add(offset)
        for line in self._lines:
            if line["op"] == "out" and line["T"] == LEDGER:
                for offset, _, _, _, _, key in line["rows"]:
                    rows.setdefault((LEDGER, line["q"], key), set()).add(offset)
        self._key_rows = {key: sorted(offsets) for key, offsets in rows.items()}

    # -- what is left -----------------------------------------------------------------------------

    def compare(self, left: Left) -> None:
        """Check what was found against what was answered."""
        past = self._past
        for place, identity in left.stored.items():
            self._place(place, identity, "journal")
        self._over.update(left.dead)
        self._say_order(left.dead)
        lease: list[HandOut] = []
        for one in left.out:
            if lease and (one.owner[:3], one.lease) != (lease[0].owner[:3], lease[0].lease):
                self._over.update(before.owner for before in lease)  # settled before the next pull
                lease = []
            lease.append(one)
            self._hand_out(one)
        drained = {one.owner for one in left.out}
        self._say_order(left.dead)
        for owner, died in left.dead.items():
            self._place(owner[1:], died.identity, f"dead letters of {owner[0]}")
            self._check_dead(owner, died.attempt, died.outcome, died.cause)
            if owner in past.done:
                self.say(f"dead: {owner} was acknowledged, and is a dead letter")
        where: dict[Identity, set[Place]] = {}
        for place, identity in past.places.items():
            where.setdefault(identity, set()).add(place)
        for identity, places in where.items():
            if len(places) > 1:
                self.say(f"duplicate: {identity} stands at {sorted(places)}")
        for owner in past.dead - left.dead.keys():
            self.say(f"dead: {owner} was rejected or exhausted, and is no dead letter")
        for identity, line in past.answered.items():
            topic = past.tried[identity].topic if identity in past.tried else line["a"][0]
            if self._power and TOPICS[topic].durability is Durability.FAST:
                continue
            if identity not in where:
                self.say(f"lost: {identity}, answered for {topic}, is nowhere")
        for place, identity in past.places.items():
            self._check_place(place, identity, left, drained)

    def _say_order(self, dead: dict[Owner, Died]) -> None:
        """Say which rows came before one of their key was over.

        A lease may end by time before its hand-out is answered, the last of a row as well: then
        nobody was told of it, and only the dead letter says when the row was over.
        """
        for owner, one in self._before_its_turn:
            died = dead.get(owner)
            if died is None or died.time_us > one.time_us:
                self.say(f"order: {one.owner} of {one.key} comes before {owner[3]} is over")
        self._before_its_turn = []

    def _check_place(
        self, place: Place, identity: Identity, left: Left, drained: set[Owner]
    ) -> None:
        topic, queue, offset = place
        past = self._past
        kept = offset >= left.first.get((topic, queue), 0)
        if kept and place not in left.stored:
            self.say(f"lost: {identity} is not at {place} any more")
        for group in GROUPS[topic]:
            owner = (group, *place)
            if owner in drained or owner in left.dead or owner in past.maybe_done:
                continue
            self.say(f"lost: {identity} at {place} never came to {group}")

    def _check_dead(self, owner: Owner, attempt: int, outcome: int, cause: int) -> None:
        if outcome != Outcome.DEAD:
            self.say(f"dead: {owner} is a dead letter whose last failure is {outcome}")
        elif cause == Cause.REJECTED:
            if owner not in self._past.maybe_rejected:
                self.say(f"dead: {owner} was rejected by nobody")
        elif attempt < ATTEMPTS:
            self.say(f"dead: {owner} died at attempt {attempt} of {ATTEMPTS}, cause {cause}")


# ------------------------------------------------------------------------------------------ drain


class Drainer:
    """Opens a folder and takes everything out of it."""

    def __init__(self, disk: Disk) -> None:
        self.shell = Shell(disk, Options(segment_bytes=1 << 20), seed=1)
        self.broker = self.shell.broker
        self._later_us = 0

    @property
    def now_us(self) -> int:
        """Broker time, which the drainer turns forward."""
        return self.shell.now_us + self._later_us

    def stored(self) -> Iterator[tuple[Place, Row]]:
        """Yield every row that its queue still holds."""
        index = self.broker.index
        for name in TOPICS:
            if name not in self.broker.views.catalog.by_name:
                continue
            topic = self.broker.views.catalog.topic(name)
            for queue in topic.queues:
                offset, number = queue.first, topic.number
                while offset < queue.next:
                    places = self.shell.ask(
                        index.locate, number, queue.number, offset, queue.next, 1 << 20
                    )
                    if places.stop <= offset:
                        break
                    for at, start in enumerate(places.first_offsets):
                        ends = places.first_offsets[at + 1 : at + 2] or [places.stop]
                        for row in range(max(offset, start), ends[0]):
                            found = self.shell.row_at(places.positions[at], row)
                            yield (name, queue.number, row), found
                    offset = places.stop

    def commit(self) -> None:
        """Make all durable, and segments for more."""
        journal = self.broker.journal
        journal.flush()
        journal.sync_now()
        self.broker.committed()
        while (job := journal.wants_spare()) is not None:
            job.run()
            journal.spare_ready(job)

    def drain(self) -> Iterator[HandOut]:
        """Pull and acknowledge everything that comes, turning time forward until nothing does."""
        broker = self.broker
        self.commit()
        joined = broker.clients.join(self.now_us, "verify", "verify").value
        assert isinstance(joined, int)
        session = joined
        for _ in range(STEPS):
            busy = False
            for name in TOPICS:
                if name not in broker.views.catalog.by_name:
                    continue
                for group in broker.views.catalog.topic(name).by_group:
                    while (reply := self._pull(session, name, group)) is not None:
                        yield from self._take(session, name, group, reply)
                        self.commit()
                    busy = busy or self._owes(name, group)
            if not busy:
                return
            self._later_us += MINUTE_US
            while broker.tick(self.now_us):
                self.commit()
            self.commit()
        raise AssertionError("the queues do not drain")

    def _pull(self, session: int, topic: str, group: str) -> PullReply | None:
        for _ in range(3):
            try:
                return self.shell.ask(
                    lambda: self.broker.pull(self.now_us, session, topic, group, 256)
                )
            except JournalFull:
                self.commit()
        raise AssertionError("no segment becomes ready")

    def _take(self, session: int, topic: str, group: str, reply: PullReply) -> Iterator[HandOut]:
        for row in self.shell.rows(reply):
            yield HandOut(
                (group, topic, reply.queue, row.offset),
                (reply.epoch, reply.lease),
                row.attempt,
                row.deliveries,
                identity_of(row.row.body),
                row.position < reply.suspect_below,
                row.row.ordering_key,
                self.now_us,
            )
        lease = (reply.queue, reply.epoch, reply.lease)
        self.broker.settle(self.now_us, session, bodies.Settle(topic, group, *lease, Outcome.DONE))

    def _owes(self, topic: str, group: str) -> bool:
        return any(
            held.failures.waiting_rows or held.leases or held.ready or held.cursor < queue.next
            for held, queue in self._queues(topic, group)
        )

    def _queues(self, topic: str, group: str) -> Iterator[tuple[Progress, Any]]:
        known = self.broker.views.catalog.topic(topic)
        subscription = self.broker.views.catalog.subscription(topic, group)
        yield from zip(subscription.queues, known.queues, strict=True)

    def dead(self) -> Iterator[tuple[Owner, Died]]:
        """Yield every dead letter: whose, what, attempts, how its last failure went."""
        for name in TOPICS:
            if name not in self.broker.views.catalog.by_name:
                continue
            for group in self.broker.views.catalog.topic(name).by_group:
                for held, queue in self._queues(name, group):
                    for shard in sorted(held.failures.dead):
                        for row in held.failures.dead[shard]:
                            owner = (group, name, queue.number, row.offset)
                            yield owner, self._dead_letter(held, row.offset, row.position)

    def _dead_letter(self, held: Progress, offset: int, position: int) -> Died:
        broker = self.broker
        index = broker.index
        place = self.shell.ask(lambda: index.moved(held.topic, held.queue, offset))
        if place is not None:
            found: int = place.position
        else:
            places = self.shell.ask(
                lambda: index.locate(held.topic, held.queue, offset, offset + 1, 0)
            )
            found = places.positions[0]
        entries = self.shell.ask(
            lambda: failure_entries(broker.store, held, offset, position, broker.journal.first)
        )
        if not entries:
            return Died(None, 0, -1, -1, 0)
        last = entries[-1]
        return Died(
            identity_of(self.shell.row_at(found, offset).body),
            last.attempt,
            last.outcome,
            last.cause,
            last.time_us,
        )


def verify(disk: Disk, lines: list[Line], *, power: bool) -> dict[str, object]:
    """Return the verdict on a folder."""
    verifier = Verifier(lines, power=power)
    counts = {
        op: sum(line["op"] == op for line in lines)
        for op in ("begin", "try", "sent", "refused", "out", "settled", "expired", "failed")
    }
    try:
        drainer = Drainer(disk)
    except JournalError as error:
        return {"problems": [f"open: {type(error).__name__}: {error}"], **counts}
    try:
        left = Left()
        stored = list(drainer.stored())
        verifier.learn_keys(stored)
        verifier.read_history()
        left.stored = {place: identity_of(row.body) for place, row in stored}
        for name in TOPICS:
            if name in drainer.broker.views.catalog.by_name:
                for queue in drainer.broker.views.catalog.topic(name).queues:
                    left.first[name, queue.number] = queue.first
        left.out = list(drainer.drain())
        left.dead = dict(drainer.dead())
        verifier.compare(left)
        report = drainer.shell.report
        drainer.shell.close()
    finally:
        disk.close()
    return {
        "problems": verifier.problems,
        **counts,
        "repeats": verifier.repeats,
        "left": len(left.stored),
        "drained": len(left.out),
        "came": [one.owner for one in left.out[:MOST_LISTED]],
        "dead": len(left.dead),
        "removed": sum(left.first.values()),
        "cut": report.cut,
        "fault": report.fault,
        "records": report.record_count,
        "epoch": report.epoch,
        "clean": report.clean,
    }


def main() -> None:
    """Answer requests until the input ends."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for request in sys.stdin:
        child = os.fork()  # whatever it opens is closed when it ends: the folder can be unmounted
        if not child:
            _answer(json.loads(request))
        os.waitpid(child, 0)


def _answer(asked: dict[str, Any]) -> NoReturn:
    """Write the verdict and end the process."""
    try:
        lines = history.read(asked["history"])
        verdict = verify(RealDisk(asked["folder"]), lines, power=asked["power"])
    except Exception:  # noqa: BLE001 - whoever asks must hear of it, not wait for ever
        verdict = {"problems": [f"open: {traceback.format_exc()}"]}
    os.write(sys.stdout.fileno(), json.dumps(verdict).encode() + b"\n")
    os._exit(0)


if __name__ == "__main__":
    main()
