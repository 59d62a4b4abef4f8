"""The entries of deduplication in the order of the journal, cut into runs for STATE.

New entries are added to a run until it is full. Each set *cuts*: it closes the run, and all runs
since the last set get a name, (begin of the set, part). A run is written once. Later sets only name
its position, so its content is freed as soon as it is written; the run itself is dropped when its
newest entry is forgotten. The bytes of a run are in `runs`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import NamedTuple

from ternmq.broker.dedup import runs as dedup_runs
from ternmq.broker.dedup.runs import ENTRY, POSITION, RUN_IDS, Content
from ternmq.record.fact.state import DEDUP_ID


class _Packed(NamedTuple):
    """The content of a run that is not written yet."""

    entries: bytes
    ids: Sequence[bytes]


class DedupRun(NamedTuple):
    """A run of entries, or of application ids."""

    last: int
    """Position of its newest entry."""
    content: _Packed | None
    """None once it is written."""


class Loaded(NamedTuple):
    """The content of the runs of a set."""

    runs: list[Content]
    ids: list[tuple[int, ...]]
    """Entries of application ids from the horizon on, in the order of the journal."""


class DedupLog:
    """The entries as STATE stores them.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_loading", "_recent_ids", "_sealed", "recent", "runs")

    def __init__(self) -> None:
        self.recent = bytearray()
        """Packed entries of the run being filled. `dedup` adds to it directly and calls ``seal``
        when it is full, because a call for each entry would cost as much as packing it."""
        self._recent_ids: list[bytes] = []
        self._sealed: list[DedupRun] = []  # full runs since the last cut
        self.runs: dict[tuple[int, int], DedupRun] = {}
        """By (begin position, part)."""
        self._loading: list[Content] = []

    def seal(self, position: int) -> None:
        """Close the run being filled; packing all runs at a set's begin would take too long."""
        self._sealed.append(DedupRun(position, _Packed(bytes(self.recent), ())))
        self.recent = bytearray()

    def add_id(
        self, topic: int, id_hash: int, body_hash: int, position: int, row: int, time_us: int
    ) -> None:
        """Add the entry of a stored message with an application id."""
        low, high = id_hash & 0xFFFFFFFFFFFFFFFF, id_hash >> 64
        self._recent_ids.append(DEDUP_ID.pack(low, high, body_hash, position, time_us, topic, row))

    def cut(self, begin: int, horizon: int) -> None:
        """Name the runs since the last cut; drop runs that are wholly below the horizon."""
        if self.recent:
            self.seal(ENTRY.unpack_from(self.recent, len(self.recent) - ENTRY.size)[POSITION])
        runs = self._sealed
        for at in range(0, len(self._recent_ids), RUN_IDS):
            ids = self._recent_ids[at : at + RUN_IDS]
            runs.append(DedupRun(DEDUP_ID.unpack(ids[-1])[3], _Packed(b"", ids)))
        for part, run in enumerate(runs):
            self.runs[begin, part] = run
        self._sealed = []
        self._recent_ids = []
        for key in [key for key, run in self.runs.items() if run.last < horizon]:
            del self.runs[key]

    def stored(self, begin: int, keys: Collection[tuple[int, int]]) -> None:
        """Note that a set of another broker has all entries below its BEGIN, in these runs.

        How that broker cut its runs is not known, so a run that is new here counts as reaching up
        to BEGIN: it is dropped a little later.

        Args:
            begin: Position of the set's BEGIN.
            keys: The runs that the set names.
        """
        known = self.runs
        self.runs = {
            key: DedupRun(known[key].last if key in known else begin - 1, None)
            for key in sorted(keys)
        }
        sealed = [one for one in self._sealed if one.last >= begin]
        if sealed and sealed[0].content is not None:  # BEGIN may be in the middle of it
            packed = sealed[0].content
            sealed[0] = DedupRun(
                sealed[0].last, packed._replace(entries=_from(packed.entries, begin))
            )
        self._sealed = sealed
        self.recent = bytearray(_from(self.recent, begin))
        ids = self._recent_ids
        self._recent_ids = ids[bisect_left(ids, begin, key=lambda one: DEDUP_ID.unpack(one)[3]) :]

    def encode(self, begin: int, part: int) -> bytes:
        """Return the payload of a run that is not written yet."""
        content = self.runs[begin, part].content
        if content is None:
            raise KeyError((begin, part))
        return dedup_runs.encode(content.entries, content.ids)

    def written(self, begin: int, part: int) -> None:
        """Free a run's payload, which is in the journal now."""
        run = self.runs.get((begin, part))
        if run is not None:
            self.runs[begin, part] = DedupRun(run.last, None)

    def load(self, begin: int, part: int, payload: bytes) -> None:
        """Load a run; the runs may come in any order."""
        content = dedup_runs.decode(payload)
        self._loading.append(content)
        self.runs[begin, part] = DedupRun(content.last(), None)

    def take_loaded(self, horizon: int) -> Loaded:
        """Return the loaded runs, and their ids from the horizon on."""
        loading, self._loading = self._loading, []
        ids = [entry for one in loading for entry in one.ids if entry[3] >= horizon]
        ids.sort(key=lambda entry: (entry[3], entry[6]))
        return Loaded(loading, ids)


def _from(entries: bytes | bytearray, position: int) -> bytes:
    """Return the packed entries whose records are at or behind a position."""
    size = ENTRY.size
    at = bisect_left(
        range(len(entries) // size),
        position,
        key=lambda one: ENTRY.unpack_from(entries, one * size)[POSITION],
    )
    return bytes(entries[at * size :])
