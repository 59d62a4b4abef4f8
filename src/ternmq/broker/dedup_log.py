"""The entries of deduplication in the order of the journal, cut into runs for STATE.

What is added gathers in a run until that is full; each set *cuts*: it closes the run, and all runs
since the last set get a name, (begin of the set, part). A run is written once. Later sets only name
where it stands, so its content is given up as soon as it does; and it goes when its newest entry is
forgotten. The bytes of a run are in `dedup_runs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ternmq.broker import dedup_runs
from ternmq.broker.dedup_runs import ENTRY, ID_ENTRY, POSITION, RUN_IDS, Content


class _Packed(NamedTuple):
    """Content of a run that is not written yet."""

    entries: bytes
    ids: Sequence[bytes]


class Run(NamedTuple):
    """A run of entries, or of application ids."""

    last: int
    """Newest position in it."""
    content: _Packed | None
    """None once it is written."""


class Loaded(NamedTuple):
    """What the runs of a set hold."""

    runs: list[Content]
    ids: list[tuple[int, ...]]
    """From the horizon on, in the order of the journal."""


class DedupLog:
    """What STATE keeps of the entries. Loop only."""

    __slots__ = ("_loading", "_recent_ids", "_sealed", "recent", "runs")

    def __init__(self) -> None:
        self.recent = bytearray()
        """Packed entries of the run being filled; whoever adds one calls ``seal`` when it is full:
        a call for each entry would cost as much as packing it."""
        self._recent_ids: list[bytes] = []
        self._sealed: list[Run] = []  # full runs since the last cut
        self.runs: dict[tuple[int, int], Run] = {}
        """By (begin position, part)."""
        self._loading: list[Content] = []

    def seal(self, position: int) -> None:
        """Close the run being filled: packing all of them at a set's begin would be a long turn."""
        self._sealed.append(Run(position, _Packed(bytes(self.recent), ())))
        self.recent = bytearray()

    def add_id(
        self, topic: int, id_hash: int, body_hash: int, position: int, row: int, time_us: int
    ) -> None:
        """A message with an application id was stored."""
        low, high = id_hash & 0xFFFFFFFFFFFFFFFF, id_hash >> 64
        self._recent_ids.append(ID_ENTRY.pack(low, high, body_hash, position, time_us, topic, row))

    def cut(self, begin: int, horizon: int) -> None:
        """Name the runs since the last cut; forget those that lie below the horizon whole."""
        if self.recent:
            self.seal(ENTRY.unpack_from(self.recent, len(self.recent) - ENTRY.size)[POSITION])
        runs = self._sealed
        for at in range(0, len(self._recent_ids), RUN_IDS):
            ids = self._recent_ids[at : at + RUN_IDS]
            runs.append(Run(ID_ENTRY.unpack(ids[-1])[3], _Packed(b"", ids)))
        for part, run in enumerate(runs):
            self.runs[begin, part] = run
        self._sealed = []
        self._recent_ids = []
        for key in [key for key, run in self.runs.items() if run.last < horizon]:
            del self.runs[key]

    def encode(self, begin: int, part: int) -> bytes:
        """Return a run's payload, as long as it is not written."""
        content = self.runs[begin, part].content
        if content is None:
            raise KeyError((begin, part))
        return dedup_runs.encode(content.entries, content.ids)

    def written(self, begin: int, part: int) -> None:
        """Forget a run's payload: it stands in the journal."""
        run = self.runs.get((begin, part))
        if run is not None:
            self.runs[begin, part] = Run(run.last, None)

    def load(self, begin: int, part: int, payload: bytes) -> None:
        """Take over a run, in whatever order they come."""
        content = dedup_runs.decode(payload)
        self._loading.append(content)
        self.runs[begin, part] = Run(content.last(), None)

    def take_loaded(self, horizon: int) -> Loaded:
        """Return what was loaded; ids only from the horizon on."""
        loading, self._loading = self._loading, []
        ids = [entry for one in loading for entry in one.ids if entry[3] >= horizon]
        ids.sort(key=lambda entry: (entry[3], entry[6]))
        return Loaded(loading, ids)
