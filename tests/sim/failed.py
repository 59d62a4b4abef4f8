"""Operators that look for failed rows, and do something to many of them piece by piece.

``Finder`` compares each answer with a judgement of every row, and retries, deletes or redrives what
is found, a few rows at a time: others act between two pieces, or the broker dies. ``Mover`` moves
dead letters to another topic, as the client library does: it sends them there, and deletes them
when the answer came.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ternmq.broker.gate.replies import Reply
from ternmq.broker.group.rowstate import RowState
from ternmq.broker.query.failed import FailedSearch, Matches
from ternmq.broker.query.failedpiece import EVER_US, FAILED_STATES, Selection
from ternmq.client.admin.redriving import HEADER, redriven_id
from ternmq.model.errors import TernMQError
from ternmq.record.batch.batch import Row, encode
from tests.sim.history import GroupKey, Tried
from tests.sim.producers import Producer
from tests.sim.reference import RefGroup, rows_of
from tests.sim.replays import Replayer
from tests.sim.tape import Violation
from tests.sim.world import World

_FAILED: Final = {state.value: state for state in FAILED_STATES}


class Finder(Replayer):
    """Asks for failed rows, and does something to many."""

    def __init__(
        self, world: World, topic: str, group: str, *, every_us: int, acts: tuple[str, ...]
    ) -> None:
        super().__init__(world, topic, group, every_us=every_us, acts=acts)
        self._many: tuple[str, GroupKey, Selection, int] | None = None
        """What is under way: the act, its queue, which rows, the offset after which it goes on."""
        world.restart_hooks.append(self._died)

    def _died(self) -> None:
        if self._many is not None:
            self.world.reached("many failed rows: the broker died between two pieces")
        self._many = None

    def _find(self) -> None:
        """Ask in each way; every answer has the rows that a judgement of each finds."""
        at = self._queue()
        if at is None:
            return
        world, (key, group, _) = self.world, at
        rows = self._judged(key, group)
        if rows is None:
            return
        selection = self._selection(rows)
        expected = {
            offset: failed_us
            for offset, (state, attempts, failed_us) in rows.items()
            if state in selection.states
            and attempts >= selection.attempts
            and selection.since_us <= failed_us < selection.until_us
        }
        limit = world.chance.randint(1, 4)
        found = [one for piece in self._pieces(key, selection, limit) for one in piece.offsets]
        if found != sorted(expected):
            raise Violation(f"found {found} by {selection}, should be {sorted(expected)}")
        search, name = FailedSearch(world.broker.ledger), (self.topic, self.group, key[2])
        counts = world.ask(lambda: search.count(*name, selection, after=-1)).counts
        if sum(counts.values()) != len(expected):
            raise Violation(f"counted {counts} by {selection}, there are {len(expected)}")
        latest = world.ask(lambda: search.newest(*name, selection, after=-1, limit=limit))
        times = sorted(expected.values(), reverse=True)[:limit]
        if latest.failed_us != times or any(
            expected.get(offset) != failed_us
            for offset, failed_us in zip(latest.offsets, latest.failed_us, strict=True)
        ):
            raise Violation(f"newest by {selection}: {latest}, should be {times}")
        some = sorted(rows)[:: world.chance.randint(1, 3)]
        matching = world.ask(lambda: search.matching(*name, selection, some))
        if matching != [one for one in some if one in expected]:
            raise Violation(f"of {some} {matching} match {selection}, should be {expected}")
        if expected:
            world.reached("failed rows found")
            if selection.since_us and any(rows[one][0] is not RowState.DEAD for one in expected):
                world.reached("rows that wait found by time")

    def _judged(
        self, key: GroupKey, group: RefGroup
    ) -> dict[int, tuple[RowState, int, int]] | None:
        """Return state, attempts and time of the newest failure of each failed row.

        None: the reference has not read the newest records yet.
        """
        world = self.world
        found: dict[int, tuple[RowState, int, int]] = {}
        first = world.broker.journal.first
        for offset, view in rows_of(world.broker.views.progress[key]).items():
            state = _FAILED.get(str(view[0]))
            if state is None:
                continue
            row = group.rows.get(offset)
            if row is None or row.plain() != view:
                return None
            assert isinstance(view[1], int)
            found[offset] = state, view[1], row.failed_us if row.told >= first else 0
        return found

    def _selection(self, rows: dict[int, tuple[RowState, int, int]]) -> Selection:
        chance = self.world.chance
        states = [state for state in FAILED_STATES if chance.random() < 0.7] or [RowState.DEAD]
        times = sorted({failed_us for _, _, failed_us in rows.values()}) or [1]
        since_us = chance.choice(times) if chance.random() < 0.6 else 0
        until_us = chance.choice(times) + chance.randint(0, 1) if chance.random() < 0.4 else EVER_US
        attempts = chance.choice([0, 0, 1, 2])
        return Selection(frozenset(states), since_us, until_us, attempts)

    def _pieces(self, key: GroupKey, selection: Selection, limit: int) -> Iterator[Matches]:
        search, after = FailedSearch(self.world.broker.ledger), -1
        while True:
            piece = self._piece(search, key, selection, after, limit)
            yield piece
            if not isinstance(piece.after, int):
                return
            if piece.after <= after:
                raise Violation(f"a search goes on after {piece.after}, it was at {after}")
            after = piece.after

    def _piece(
        self, search: FailedSearch, key: GroupKey, selection: Selection, after: int, limit: int
    ) -> Matches:
        return self.world.ask(
            lambda: search.by_offset(
                self.topic, self.group, key[2], selection, after=after, limit=limit
            )
        )

    # -- many -------------------------------------------------------------------------------------

    def _redrive_many(self) -> None:
        self._begin_many("redrive", frozenset({RowState.DEAD}))

    def _retry_many(self) -> None:
        self._begin_many("retry_now", frozenset({RowState.WAITING, RowState.HELD}))

    def _delete_many(self) -> None:
        self._begin_many("delete_failures", frozenset(FAILED_STATES))

    def _begin_many(self, act: str, states: frozenset[RowState]) -> None:
        at = self._queue()
        if at is None or self._many is not None:
            return
        attempts = self.world.chance.choice([0, 0, 1])
        self._many = act, at[0], Selection(states, attempts=attempts), -1
        self._step()

    def _step(self) -> None:
        """Do it to the next rows, and go on later."""
        many, world = self._many, self.world
        if many is None:
            return
        act, key, selection, after = many
        if world.broker.views.progress.get(key) is None:
            self._many = None
            return
        search = FailedSearch(world.broker.ledger)
        piece = self._piece(search, key, selection, after, world.chance.randint(1, 3))
        if piece.offsets:
            self._act_on(act, key, selection, piece.offsets)
        if not isinstance(piece.after, int):
            self._many = None
            world.reached(f"{act} of many: done")
            return
        self._many = act, key, selection, piece.after
        world.reached(f"{act} of many: a piece")
        world.after(1 + world.chance.randrange(self.every_us // 2), self._step)

    def _act_on(self, act: str, key: GroupKey, selection: Selection, offsets: list[int]) -> None:
        world = self.world
        before = rows_of(world.broker.views.progress[key])
        wrong = [
            one for one in offsets if before[one][0] not in {s.value for s in selection.states}
        ]
        if wrong:
            raise Violation(f"{act} of many would be done to {wrong} by {selection}")
        if act == "redrive":
            self._ask(key, set(offsets), lambda dry_run: world.broker.operating.redrive(
                world.now_us(), 0, self.topic, self.group, key[2], offsets, dry_run=dry_run
            ), "redrive")  # fmt: skip
            return
        call = getattr(world.broker.operating, act)
        self._do(act, lambda: call(world.now_us(), self.topic, self.group, key[2], offsets))


class Mover(Producer):
    """Moves dead letters to another topic, a few at a time; with each start it is a new program."""

    def __init__(
        self, world: World, topic: str, number: int, *, source: str, group: str, every_us: int
    ) -> None:
        self.source = source
        self.group = group
        self._under_way: list[tuple[int, int]] = []
        """(offset, time of death) of the letters that were sent."""
        self._key: GroupKey = (0, 0, 0)
        super().__init__(world, topic, number, every_us=every_us)
        self.ids = 1  # what it sends has ids

    def restarted(self) -> None:
        """The program died with the broker: the next one knows nothing of it."""
        if self._under_way:
            self.world.reached("dead letters moved: died before they were deleted")
        self._under_way = []
        self.unanswered.clear()
        self.recent.clear()
        self.number += 1000
        self.sequence = 0
        self._again()

    def _act(self) -> None:
        self._again()
        world = self.world
        topic = world.broker.views.catalog.by_name.get(self.source)
        found = topic.by_group.get(self.group) if topic is not None else None
        if topic is None or found is None or self._under_way or world.calm:
            return
        self._key = found.group, topic.number, world.chance.randrange(len(topic.queues))
        search = FailedSearch(world.broker.ledger)
        dead = Selection(frozenset({RowState.DEAD}))
        piece = world.ask(
            lambda: search.by_offset(self.source, self.group, self._key[2], dead, after=-1, limit=3)
        )
        rows = rows_of(world.broker.views.progress[self._key])
        read = world.reference.topics.get(self._key[1])
        stored = read.queues[self._key[2]] if read is not None else []
        if piece.offsets and piece.offsets[-1] < len(stored):
            self._under_way = [(one, int(str(rows[one][4]))) for one in piece.offsets]
            self._send(self._moved([stored[one].row() for one in piece.offsets]))

    def _moved(self, letters: list[Row]) -> Tried:
        queue = self._key[2]
        rows = [
            Row(
                body=one.body,
                key=one.key,
                tag=one.tag,
                headers={HEADER: f"{self.source}/{self.group}/{queue}/{offset}"},
                application_id=redriven_id(self.source, self.group, queue, offset, died_us),
            )
            for one, (offset, died_us) in zip(letters, self._under_way, strict=True)
        ]
        batch = encode(
            rows, topic_seed=self.seed, producer_id=self.number, first_sequence=self.sequence,
            born_us=self.world.monotonic_us,
        )  # fmt: skip
        tried = Tried(self.topic, self.number, batch, rows, self.world.monotonic_us)
        self.world.history.tried[batch] = tried
        self.unanswered[self.sequence] = tried
        self.sequence += len(rows)
        return tried

    def _refused(
        self, tried: Tried, sequence: int, error: TernMQError, *, fresh: bool, again: bool
    ) -> None:
        super()._refused(tried, sequence, error, fresh=fresh, again=again)
        self._under_way = []

    def _answered(self, tried: Tried, sequence: int, reply: Reply) -> None:
        super()._answered(tried, sequence, reply)
        if self._under_way:
            self.world.after(self.world.chance.randrange(self.every_us), self._delete)

    def _delete(self) -> None:
        """Delete what was sent, if it is dead since the same time."""
        moved, self._under_way = self._under_way, []
        world, place = self.world, (self.source, self.group, self._key[2])
        if not moved or world.broker.views.progress.get(self._key) is None:
            return
        self._check_once({self._id(one) for one in moved})
        times = [died_us for _, died_us in moved]
        same = Selection(frozenset({RowState.DEAD}), min(times), max(times) + 1)
        search = FailedSearch(world.broker.ledger)
        left = world.ask(lambda: search.matching(*place, same, [offset for offset, _ in moved]))
        if not left:
            return
        reply = world.command(
            lambda: world.broker.operating.delete_failures(world.now_us(), *place, left)
        )
        if not isinstance(reply, TernMQError):
            world.reached("dead letters moved")
            world.hold(reply, lambda told: world.history.rely(world.disk.at, told.position))

    def _id(self, letter: tuple[int, int]) -> str:
        return redriven_id(self.source, self.group, self._key[2], *letter)

    def _check_once(self, ids: set[str]) -> None:
        """Each is in the other topic once, as long as deduplication remembers it."""
        world = self.world
        topic = world.broker.views.catalog.by_name[self.topic]
        stored: dict[str, int] = {}
        for queue in world.reference.topics[topic.number].queues:
            for one in queue:
                id_ = one.row().application_id
                if id_ in ids:
                    if id_ in stored and world.remembers(stored[id_]):
                        raise Violation(f"{id_} was stored twice")
                    stored[id_] = one.time_us
        if missing := ids - stored.keys():
            raise Violation(f"{missing} would be deleted, and were not stored")
