"""Failed rows of some shards as columns, and which of them match a selection.

Needs numpy, which is imported at the first search: see ``server.telemetry.late_imports``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from ternmq.broker.group.failedrows import HELD_US, SHARD_BITS
from ternmq.broker.group.failurestore import FailureStore
from ternmq.broker.group.rowstate import RowState

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FAILED_STATES: Final = (RowState.WAITING, RowState.HELD, RowState.DEAD)
"""The states of failed rows."""
EVER_US: Final = 2**63 - 1


@dataclass(slots=True, frozen=True)
class Selection:
    """Which failed rows are meant: those for which all of this holds."""

    states: frozenset[RowState] = frozenset(FAILED_STATES)
    since_us: int = 0
    """The newest failure was at or after this time."""
    until_us: int = EVER_US
    """The newest failure was before this time."""
    attempts: int = 0
    """At least as many attempts were made."""

    @property
    def timed(self) -> bool:
        """Whether the time of the newest failure matters."""
        return self.since_us > 0 or self.until_us < EVER_US


class Times(Protocol):
    """Knows when rows failed that are not dead.

    Rows are two columns of equal length: their offsets, ascending, and the positions of the records
    of their newest failures. An answer may tell of the first rows only, and at least of one, so
    that the reads for it are bounded.
    """

    def within(
        self,
        offsets: NDArray[np.int64],
        positions: NDArray[np.int64],
        since_us: int,
        until_us: int,
    ) -> NDArray[np.bool_]:
        """Return of each of the first rows whether it failed last in a span of time."""
        ...

    def latest(
        self, offsets: NDArray[np.int64], positions: NDArray[np.int64], limit: int
    ) -> tuple[list[tuple[int, int]], int]:
        """Return (time, offset) of those of the first rows that failed last, and maybe of others.

        They are in any order. The number is how many rows those first ones are.
        """
        ...


class FailedPiece:
    """Failed rows of consecutive shards, by offset.

    Args:
        failures: The failed rows of a group queue.
        selection: Of which rows may be left out that are in other states.
        after: Only rows above this offset.
        rows: Number of rows after which the piece ends, at the edge of a shard.
        shards: Likewise, number of shards.
    """

    __slots__ = ("_attempts", "_dead", "_end", "_offsets", "_positions", "_when", "after")

    def __init__(
        self, failures: FailureStore, selection: Selection, after: int, rows: int, shards: int
    ) -> None:
        import numpy as np

        dead = RowState.DEAD in selection.states
        waiting = not selection.states <= {RowState.DEAD}
        stores = [
            (store, kind)
            for store, kind, wanted in (
                (failures.waiting, False, waiting),
                (failures.dead, True, dead),
            )
            if wanted and store
        ]
        first = (after + 1) >> SHARD_BITS
        keys = sorted({key for store, _ in stores for key in store if key >= first})
        self.after: int | None = None
        """Offset after which the next piece begins; None: there is none."""
        columns: list[tuple[Any, ...]] = []
        gathered = 0
        for at, key in enumerate(keys):
            if gathered >= rows or at >= shards:
                self.after = (key << SHARD_BITS) - 1
                break
            for store, kind in stores:
                one = store.get(key)
                if one is not None:
                    gathered += len(one)
                    offsets = np.frombuffer(one.relative, dtype=np.uint16).astype(np.int64)
                    references = np.frombuffer(one.references, dtype=np.uint64)
                    columns.append(
                        (
                            offsets + one.base,
                            np.frombuffer(one.when, dtype=np.int64).copy(),
                            (references >> np.uint64(16)).astype(np.int64),
                            (references & np.uint64(0xFFFF)).astype(np.int64),
                            np.full(len(one), kind),
                        )
                    )
        if not columns:
            columns = [(*[np.empty(0, dtype=np.int64)] * 4, np.empty(0, dtype=bool))]
        joined = [np.concatenate(parts) for parts in zip(*columns, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        order = order[joined[0][order] > after]
        self._offsets: NDArray[np.int64] = joined[0][order]
        self._when: NDArray[np.int64] = joined[1][order]
        self._positions: NDArray[np.int64] = joined[2][order]
        self._attempts: NDArray[np.int64] = joined[3][order]
        self._dead: NDArray[np.bool_] = joined[4][order]
        self._end = len(order)
        """Number of the rows of the piece: it ends earlier if its times need too many reads."""

    def chosen(self, selection: Selection, times: Times) -> NDArray[np.int64]:
        """Return the numbers of the rows that match, by offset.

        Raises:
            WouldBlock: As ``times``.
        """
        import numpy as np

        held = self._when == HELD_US
        mask = np.zeros(len(self._offsets), dtype=bool)
        if RowState.DEAD in selection.states:
            mask |= self._dead
        if RowState.HELD in selection.states:
            mask |= ~self._dead & held
        if RowState.WAITING in selection.states:
            mask |= ~self._dead & ~held
        if selection.attempts:
            mask &= self._attempts >= selection.attempts
        if selection.timed:
            since_us, until_us = selection.since_us, selection.until_us
            mask &= ~self._dead | (self._when >= since_us) & (self._when < until_us)
            others = np.flatnonzero(mask & ~self._dead)
            if len(others):
                within = times.within(
                    self._offsets[others], self._positions[others], since_us, until_us
                )
                self._end_after(others, len(within))
                mask[others[: len(within)]] = within
        return np.flatnonzero(mask[: self._end])

    def latest(self, chosen: NDArray[np.int64], times: Times, limit: int) -> list[tuple[int, int]]:
        """Return (time, offset) of the chosen rows that failed last, newest first.

        Raises:
            WouldBlock: As ``times``.
        """
        import numpy as np

        found: list[tuple[int, int]] = []
        others = chosen[~self._dead[chosen]]
        if len(others):
            found, told = times.latest(self._offsets[others], self._positions[others], limit)
            self._end_after(others, told)
        dead = chosen[self._dead[chosen] & (chosen < self._end)]
        dead = dead[np.lexsort((self._offsets[dead], self._when[dead]))][-limit:]
        found += zip(self._when[dead].tolist(), self._offsets[dead].tolist(), strict=True)
        return sorted(found, reverse=True)[:limit]

    def offsets(self, chosen: NDArray[np.int64]) -> list[int]:
        """Return the offsets of chosen rows."""
        found: list[int] = self._offsets[chosen].tolist()
        return found

    def counts(self, chosen: NDArray[np.int64]) -> dict[RowState, int]:
        """Return the number of chosen rows in each state, without those behind the end."""
        import numpy as np

        chosen = chosen[chosen < self._end]
        dead = int(np.count_nonzero(self._dead[chosen]))
        held = int(np.count_nonzero(~self._dead[chosen] & (self._when[chosen] == HELD_US)))
        counts = (len(chosen) - dead - held, held, dead)
        return {state: n for state, n in zip(FAILED_STATES, counts, strict=True) if n}

    def _end_after(self, rows: NDArray[np.int64], told: int) -> None:
        """End before the first of some rows that ``times`` did not tell of, if there is one."""
        if told < len(rows):
            self._end = int(rows[told])
            self.after = int(self._offsets[self._end]) - 1
