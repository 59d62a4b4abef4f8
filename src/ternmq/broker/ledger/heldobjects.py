"""The STATE objects of group queues: HELD (cursors), GIVEN (what was given), SHARD (owed rows)."""

from __future__ import annotations

from collections.abc import Iterator

from ternmq.broker.containers.stateobject import ALWAYS, LOADED, StateType
from ternmq.broker.group.cursors import (
    encode_given,
    encode_page,
    given_entries,
    load_entry,
)
from ternmq.broker.group.given import NOTHING
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.shards import encode_shard, load_shard, shards_of
from ternmq.broker.ledger.views import Views
from ternmq.journal.state.sets import StateKey
from ternmq.model.types import Position
from ternmq.record.fact.state import CURSOR, GIVEN, HELD, SHARD


class HeldObjects(StateType):
    """HELD: pages of cursors.

    Yields the keys of GIVEN and SHARD too, each page's behind the page. GIVEN must be behind HELD:
    a fact that it lacks is applied to the cursor of that moment, so HELD must lack it too.
    """

    def __init__(self, views: Views) -> None:
        self._views = views

    def keys(self, begin: int) -> Iterator[StateKey]:
        """Yield the pages of group queues and their shards; few steps where nothing is owed."""
        pages, known = self._views.held_pages, self._views.progress
        for place in sorted(pages):
            page = pages.get(place)
            if page is None:
                continue
            if page.idle():
                yield StateKey(HELD, *place)
                if page.gives:
                    yield StateKey(GIVEN, *place)
                continue
            some = self._views.catalog.held_of_page(*place)
            if not some:
                del pages[place]
                continue
            # Before HELD is written: commands may come between. If a group queue has something at
            # HELD, GIVEN is needed, though it may have nothing by then.
            page.gives = page.gives and any(one.given != NOTHING for one in some)
            yield StateKey(HELD, *place)
            if page.gives:
                yield StateKey(GIVEN, *place)
            owed = False
            for progress in some:
                if known.get((progress.group, progress.topic, progress.queue)) is not progress:
                    continue  # ended while the set is written
                shards = shards_of(progress)
                progress.forget_shards(shards)
                for shard in shards:
                    owed = True
                    yield StateKey(SHARD, progress.group, progress.topic, progress.queue, shard)
            page.idle_at = 0 if owed else begin

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del key
        modes = self._views.catalog.modes
        for group, topic, queue, round_, cursor, mode, known in CURSOR.iter_unpack(payload):
            progress = _held_of(self._views, group, topic, queue)
            load_entry(progress, cursor, round_, stamp, modes.numbered(mode), known)

    def encode(self, key: StateKey) -> bytes:
        return encode_page(self._views.catalog.held_of_page(key.a, key.b))

    def changed(self, key: StateKey) -> int:
        page = self._views.held_pages.get((key.a, key.b))
        return ALWAYS if page is None else page.changed


class GivenObjects(StateType):
    """GIVEN: pages of what groups were given before, divided like those of HELD.

    A group queue without an entry had nothing at the stamp: the stamp is that of all group queues
    of the page (``Views.loaded``).
    """

    def __init__(self, views: Views) -> None:
        self._views = views

    def keys(self, begin: int) -> Iterator[StateKey]:
        """Yield nothing: ``HeldObjects`` does, behind the page of cursors."""
        del begin
        return iter(())

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del stamp
        page = self._views.held_pages.get((key.a, key.b))
        if page is None:
            return
        page.gives = True
        for group, topic, queue, given in given_entries(payload):
            progress = self._views.progress.get((group, topic, queue))
            if progress is not None:  # else it was made after HELD: all of its facts follow
                progress.given = given

    def encode(self, key: StateKey) -> bytes:
        return encode_given(self._views.catalog.held_of_page(key.a, key.b))

    def changed(self, key: StateKey) -> int:
        page = self._views.held_pages.get((key.a, key.b))
        return ALWAYS if page is None else page.given_changed


class ShardObjects(StateType):
    """SHARD: the rows that a group still needs, of a thousand offsets of a queue."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def keys(self, begin: int) -> Iterator[StateKey]:
        """Yield nothing: ``HeldObjects`` does, which visits a page's group queues once for both."""
        del begin
        return iter(())

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        load_shard(_held_of(self._views, key.a, key.b, key.c), key.d, payload, stamp)

    def encode(self, key: StateKey) -> bytes:
        progress = self._views.progress.get((key.a, key.b, key.c))
        return b"" if progress is None else encode_shard(progress, key.d)

    def changed(self, key: StateKey) -> int:
        progress = self._views.progress.get((key.a, key.b, key.c))
        return (
            ALWAYS if progress is None else progress.shard_changed.get(key.d, progress.all_changed)
        )


def _held_of(views: Views, group: int, topic: int, queue: int) -> Progress:
    progress = views.progress.get((group, topic, queue))
    if progress is None:
        progress = views.hold(LOADED, group, topic, queue, 0, views.catalog.modes.numbered(0))
    return progress
