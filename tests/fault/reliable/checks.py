"""The verdict on an outbox, from outside: nothing of the component is asked.

* what the business tables have is stored at the broker, and nothing else is;
* what a process rolled back is nowhere;
* of each ordering key, the first copies are in the order of the versions;
* no message is stored twice: all of it is within the broker's window;
* no row is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import sqlalchemy as sa

import ternmq.sync
from tests.fault.reliable import shop
from tests.fault.reliable.crew import Crew
from tests.fault.reliable.tools import much, wait_until

EMPTY_S: Final = float(much(60, 600))
"""Longest wait for the outbox to be empty: a lease, back-offs, a machine that does much else."""


@dataclass(slots=True, frozen=True)
class Verdict:
    """What was found.

    Attributes:
        committed: Orders in the business table.
        rolled_back: Ids that members rolled back.
        unknown: Transactions of which their members do not know.
        copies: Messages that are stored once more, with the id of another.
    """

    committed: int
    rolled_back: int
    unknown: int
    copies: int

    def counts(self) -> dict[str, int]:
        """Return it as figures to keep."""
        return asdict(self)


def wait_until_empty(engine: sa.Engine, seconds: float = EMPTY_S) -> None:
    """Wait until the outbox has no row."""
    wait_until(lambda: shop.rows_left(engine) == 0, "the outbox is empty", seconds, pause=0.05)


def judge(
    client: ternmq.sync.Client, engine: sa.Engine, topic: str, crew: Crew, *, accounts: int
) -> Verdict:
    """Return the verdict once the outbox is empty; fails if something is wrong."""
    wait_until_empty(engine)
    committed = shop.committed(engine)
    said = {line["id"] for line in crew.lines("committed")}
    undone = {one for line in crew.lines("rolled back") for one in line["ids"] if one}
    assert said <= set(committed), f"the database forgot {sorted(said - set(committed))[:5]}"
    assert not undone & set(committed), sorted(undone & set(committed))[:5]
    versions: dict[str, list[int]] = {}
    for name, version in committed.values():
        versions.setdefault(name, []).append(version)
    assert all(sorted(ones) == list(range(1, len(ones) + 1)) for ones in versions.values())
    assert len(versions) <= accounts
    copies = 0
    for one in (topic, f"{topic}-plain"):
        stored = [shop.said(message.body) for message in client.read(one)]
        ids = [id_ for id_, _, _ in stored]
        lost, phantoms = set(committed) - set(ids), set(ids) - set(committed)
        assert not lost, f"{one}: {len(lost)} of {len(committed)} lost: {sorted(lost)[:5]}"
        assert not phantoms, f"{one}: {len(phantoms)} phantoms: {sorted(phantoms)[:5]}"
        assert not undone & set(ids), f"{one}: rolled back: {sorted(undone & set(ids))[:5]}"
        assert all(committed[id_] == (name, version) for id_, name, version in stored)
        copies += len(ids) - len(set(ids))
        if one == topic:
            _in_order(stored)
    assert copies == 0, f"{copies} messages are stored twice"
    return Verdict(len(committed), len(undone), len(crew.lines("unknown")), copies)


def _in_order(stored: Sequence[tuple[str, str, int]]) -> None:
    """Fail unless the first copies of each account come in the order of their versions."""
    seen: set[str] = set()
    last: dict[str, int] = {}
    for id_, name, version in stored:
        if id_ in seen:
            continue
        seen.add(id_)
        assert version > last.get(name, 0), f"{name}: {version} comes after {last[name]}"
        last[name] = version


def leader(engine: sa.Engine) -> int:
    """Return the process that has the lease of the compensator; 0: none."""
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT holder FROM ternmq_lease WHERE name = 'compensator'"
        ).scalar_one_or_none()
    holder = found.decode() if isinstance(found, bytes) else (found or "")
    return int(holder.split(":")[1]) if holder else 0
