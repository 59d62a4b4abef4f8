"""The STATE objects of deduplication: FORGOTTEN and DEDUP."""

from __future__ import annotations

from collections.abc import Iterator

from ternmq.broker.containers.stateobject import ALWAYS, StateType
from ternmq.broker.dedup.dedup import Dedup
from ternmq.journal.state.sets import IMMUTABLE, StateKey
from ternmq.model.types import Position
from ternmq.record.fact import state


class ForgottenObjects(StateType):
    """FORGOTTEN: the highest forgotten sequence of each producer."""

    def __init__(self, dedup: Dedup) -> None:
        self._dedup = dedup

    def keys(self, begin: int) -> Iterator[StateKey]:
        """See ``StateType``. Deduplication is cut in this call, not at the first key."""
        self._dedup.cut(begin)
        return self._keys()

    def _keys(self) -> Iterator[StateKey]:
        for page in self._dedup.pages():
            yield StateKey(state.FORGOTTEN, page)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del key, stamp
        self._dedup.load_forgotten(payload)

    def encode(self, key: StateKey) -> bytes:
        return self._dedup.forgotten(key.a)

    def changed(self, key: StateKey) -> int:
        del key
        return ALWAYS


class DedupObjects(StateType):
    """DEDUP: runs of entries; a run never changes after it was first written."""

    def __init__(self, dedup: Dedup) -> None:
        self._dedup = dedup

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        for at, part in sorted(self._dedup.runs):
            yield StateKey(state.DEDUP, 0, 0, part, at)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del stamp
        self._dedup.load_run(key.d, key.c, payload)

    def encode(self, key: StateKey) -> bytes:
        return self._dedup.encode_run(key.d, key.c)

    def changed(self, key: StateKey) -> int:
        del key
        return IMMUTABLE

    def written(self, key: StateKey) -> None:
        """See ``StateType``: the run is in the journal, and memory need not keep it."""
        self._dedup.run_written(key.d, key.c)
