"""Which process does a job: a row with a holder and a time, by the database's clock.

The lease saves work. If two processes believe that they have it, after a clock jumped or a process
was frozen, both do the job, and what they send is recognised at the broker by its id. Where one
must know what the other has noted, it asks in the statement, or in the transaction, whether the row
still names itself: that needs no clock.

A holder trusts itself by its own steady clock, counted from before the statement that renewed it.
"""

from __future__ import annotations

import os
import secrets
import socket
from typing import Final

from ternmq.client.process.steady import steady_ns
from ternmq.reliable.database.dialect import Dialect
from ternmq.reliable.database.port import Work
from ternmq.reliable.database.tables import filled

LEASE_S: Final = 10.0
"""How long it lasts."""
RENEW_S: Final = 3.0
"""How often it is renewed, and how often others ask for it."""
MARGIN_S: Final = 1.0
"""How long before its end the holder stops to rely on it."""


def steady_s() -> float:
    """Return the steady clock that also counts the time in which the machine is suspended."""
    return steady_ns() / 1e9


def holder_name() -> str:
    """Return a name for this process as a holder; two processes of one host have different ones."""
    host = "".join([one if one.isprintable() else "?" for one in socket.gethostname()[:100]])
    return f"{host}:{os.getpid()}:{secrets.token_hex(8)}"


class Lease:
    """The lease of one job. Not thread-safe.

    Args:
        dialect: Of the database.
        name: The job.
        schema: Where the tables are; empty: where the connection looks.
        seconds: How long it lasts.
        holder: Who asks; empty: this process.
    """

    def __init__(
        self,
        dialect: Dialect,
        name: str,
        schema: str = "",
        *,
        seconds: float = LEASE_S,
        holder: str = "",
    ) -> None:
        self.name = name
        self.holder = holder or holder_name()
        self.seconds = seconds
        self.epoch = 0
        """How often it changed its holder, as far as this one knows."""
        self._until = 0.0
        """Steady time at which it ends; 0: it is not held."""
        self._dialect = dialect
        # ``epoch`` first: MySQL assigns from left to right. The last condition: the database's
        # clock was set back.
        self._take = filled(
            dialect,
            "UPDATE {lease} SET epoch = epoch + CASE WHEN holder = :holder THEN 0 ELSE 1 END, "
            "holder = :holder, until_ms = {now_ms} + :ttl "
            "WHERE name = :name AND (holder = :holder OR until_ms < {now_ms} "
            "OR until_ms > {now_ms} + 10 * :ttl)",
            schema,
        )
        self._make = filled(dialect, f"INSERT {_OR_NOTHING[dialect.name]}", schema)
        self._read = filled(dialect, "SELECT epoch, holder FROM {lease} WHERE name = :name", schema)
        lock = "" if dialect.name == "sqlite" else " FOR UPDATE"
        self._lock = filled(
            dialect, f"SELECT holder FROM {{lease}} WHERE name = :name{lock}", schema
        )
        self._give = filled(
            dialect,
            "UPDATE {lease} SET holder = :nobody, until_ms = 0 "
            "WHERE name = :name AND holder = :holder",
            schema,
        )

    @property
    def held(self) -> bool:
        """Whether the holder may rely on it."""
        return steady_s() < self._until - MARGIN_S

    @property
    def left_s(self) -> float:
        """Seconds until the holder stops to rely on it; 0: it does not."""
        return max(0.0, self._until - MARGIN_S - steady_s())

    def take(self, work: Work) -> bool:
        """Take or renew it; return whether it is held. Each statement may be a transaction."""
        before = steady_s()
        values = {
            "name": self._text(self.name), "holder": self._text(self.holder),
            "ttl": round(self.seconds * 1000),
        }  # fmt: skip
        if not work.run(self._take, values).count:
            work.run(self._make, {"name": values["name"]})  # the first time
            if not work.run(self._take, values).count:
                self._until = 0.0
                return False
        self._until = before + self.seconds
        [[epoch, holder]] = work.run(self._read, {"name": values["name"]}).rows
        self.epoch = int(epoch)
        if self._dialect.text_of(holder) != self.holder:  # read after another one took it
            self._until = 0.0
        return self.held

    def is_mine(self, work: Work) -> bool:
        """Return whether nobody else took it; nobody can until the end of the transaction.

        Args:
            work: A transaction for writing.
        """
        found = work.run(self._lock, {"name": self._text(self.name)}).rows
        return [self._dialect.text_of(holder) for (holder,) in found] == [self.holder]

    def give_back(self, work: Work) -> None:
        """Let others take it at once."""
        self._until = 0.0
        text = self._text
        work.run(
            self._give,
            {"name": text(self.name), "holder": text(self.holder), "nobody": text("")},
        )

    def forget(self) -> None:
        """Do not rely on it any more: the database could not be asked."""
        self._until = 0.0

    def _text(self, value: str) -> str | bytes:
        return self._dialect.text(value)


_OR_NOTHING: Final = {
    "postgresql": "INTO {lease} (name) VALUES (:name) ON CONFLICT DO NOTHING",
    "mysql": "INTO {lease} (name) VALUES (:name) ON DUPLICATE KEY UPDATE name = name",
    "sqlite": "INTO {lease} (name) VALUES (:name) ON CONFLICT DO NOTHING",
}
