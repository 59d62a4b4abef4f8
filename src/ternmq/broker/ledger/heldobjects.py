"""The STATE objects of group queues: HELD for the cursors, and SHARD for owed rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ternmq.broker.group.heldpage import ENTRY, encode_page, load_entry
from ternmq.broker.group.progress import GroupQueue
from ternmq.broker.group.shards import encode_shard, load_shard, shards_of
from ternmq.broker.ledger.types import ALWAYS, HELD, LOADED, SHARD, ObjectType
from ternmq.journal.state.sets import StateKey
from ternmq.model.types import Position

if TYPE_CHECKING:
    from ternmq.broker.ledger.views import Views


class HeldObjects:
    """Loads and encodes HELD and SHARD objects; a part of ``StateObjects``.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_views", "types")

    def __init__(self, views: Views) -> None:
        self._views = views
        self.types = {
            HELD: ObjectType(self._load_held, self._encode_held, self._changed_held),
            SHARD: ObjectType(self._load_shard, self._encode_shard, self._changed_shard),
        }

    def keys(self, begin: int) -> Iterator[StateKey]:
        """Yield the pages of group queues and their shards; few steps where nothing is owed."""
        pages, known = self._views.held_pages, self._views.held
        for place in sorted(pages):
            page = pages.get(place)
            if page is None:
                continue
            if page.idle():
                yield StateKey(HELD, *place)
                continue
            some = self._views.catalog.held_of_page(*place)
            if not some:
                del pages[place]
                continue
            yield StateKey(HELD, *place)
            owed = False
            for held in some:
                if known.get((held.group, held.topic, held.queue)) is not held:
                    continue  # ended while the set is written
                shards = shards_of(held)
                held.forget_shards(shards)
                for shard in shards:
                    owed = True
                    yield StateKey(SHARD, held.group, held.topic, held.queue, shard)
            page.idle_at = 0 if owed else begin

    def _load_held(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del key
        for group, topic, queue, round_, cursor, ordered, _ in ENTRY.iter_unpack(payload):
            held = self._held_of(group, topic, queue)
            load_entry(held, cursor, round_, stamp, ordered=bool(ordered))

    def _encode_held(self, key: StateKey) -> bytes:
        return encode_page(self._views.catalog.held_of_page(key.a, key.b))

    def _changed_held(self, key: StateKey) -> int:
        page = self._views.held_pages.get((key.a, key.b))
        return ALWAYS if page is None else page.changed

    def _load_shard(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        load_shard(self._held_of(key.a, key.b, key.c), key.d, payload, stamp)

    def _encode_shard(self, key: StateKey) -> bytes:
        held = self._views.held.get((key.a, key.b, key.c))
        return b"" if held is None else encode_shard(held, key.d)

    def _changed_shard(self, key: StateKey) -> int:
        held = self._views.held.get((key.a, key.b, key.c))
        return ALWAYS if held is None else held.shard_changed.get(key.d, held.all_changed)

    def _held_of(self, group: int, topic: int, queue: int) -> GroupQueue:
        held = self._views.held.get((group, topic, queue))
        if held is None:
            held = self._views.hold(LOADED, group, topic, queue, 0, ordered=False)
        return held
