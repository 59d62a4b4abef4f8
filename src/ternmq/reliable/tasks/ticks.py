"""Which process runs a job, and when: its row in ``ternmq_lease``.

A tick is the database's clock divided by the period. A process that finds a new tick takes the
job's lease and then writes the tick into the row, if the row still has the tick that it read. So a
tick is run once, whatever the clocks of the processes say; and while a job runs, its lease keeps
the next tick from being run elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ternmq.reliable.database.dialect import Dialect
from ternmq.reliable.database.lease import RENEW_S, Lease
from ternmq.reliable.database.port import Work
from ternmq.reliable.database.tables import filled

_READ: Final = "SELECT tick, {now_ms} FROM {lease} WHERE name = :name"
_MARK: Final = (
    "UPDATE {lease} SET tick = :tick WHERE name = :name AND holder = :holder AND tick = :seen"
)
_NEVER: Final = -1


@dataclass(slots=True, frozen=True)
class Look:
    """What a look at the row of a job found.

    Attributes:
        run: The caller has a tick to run, and the job's lease.
        pause_s: How long to wait until the next look.
    """

    run: bool
    pause_s: float = 0.0


class Ticks:
    """The ticks of one job. Not thread-safe, but for ``renew``.

    Args:
        dialect: Of the database.
        name: The job.
        period_ms: How long a tick is.
        schema: Where the tables are.
        lease_s: How long its lease lasts, if its holder dies.
    """

    def __init__(
        self, dialect: Dialect, name: str, period_ms: int, schema: str, lease_s: float
    ) -> None:
        self.lease = Lease(dialect, name, schema, seconds=lease_s)
        self._period_ms = period_ms
        self._name = dialect.text(name)
        self._holder = dialect.text(self.lease.holder)
        self._read = filled(dialect, _READ, schema)
        self._mark = filled(dialect, _MARK, schema)

    def look(self, work: Work) -> Look:
        """Look whether a tick is to be run, and take it."""
        rows = work.run(self._read, {"name": self._name}).rows
        seen, now_ms = (int(rows[0][0]), int(rows[0][1])) if rows else (_NEVER, 0)
        tick = now_ms // self._period_ms
        if rows and not is_due(seen, tick):
            return Look(run=False, pause_s=((tick + 1) * self._period_ms - now_ms) / 1000)
        if not self.lease.take(work):  # it also makes the row
            return Look(run=False, pause_s=min(RENEW_S, self._period_ms / 1000))
        if not rows:
            return Look(run=False)
        values = {"tick": tick, "name": self._name, "holder": self._holder, "seen": seen}
        return Look(run=work.run(self._mark, values).count == 1)


def is_due(seen: int, tick: int) -> bool:
    """Return whether a tick is to be run after the one that ran last.

    One tick back is a clock that is put right; more is one that was set back, or another period:
    waiting for the old time could take for ever.
    """
    return tick > seen or tick < seen - 1
