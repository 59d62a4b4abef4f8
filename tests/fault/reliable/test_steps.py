"""SIGKILL of application, compensator, broker and database server at each of the ten steps.

A member stops itself at a step; then it, or what it works with, is killed. Who stands still at
``begin``, ``work``, ``insert`` and ``commit`` has an open transaction; at ``committed``, its hook
runs. A killed application leaves what it had committed to others; after any other kill, it goes on.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.fault.reliable import shop
from tests.fault.reliable.place import Place, place
from tests.killable_databases import KINDS, SERVED

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.row("J4", "K5")]

OPEN: Final = ("begin", "work", "insert", "commit")
"""Steps at which the transaction is open."""
WRITER: Final = (*OPEN, "committed", "send", "response", "delete")
COMPENSATOR: Final = ("scan", "resend", "response", "delete resent")
STEPS: Final = {
    "application": WRITER,
    "compensator": COMPENSATOR,
    "broker": ("insert", "send", "response", "delete"),
    "broker of compensator": COMPENSATOR,
    "database": WRITER,
    "database of compensator": COMPENSATOR,
}
COUNT: Final = 6
THIRD: Final = "first-2"
"""The order at which an application stops, if it stops in its own thread."""


def cases() -> list[object]:
    """Return kind, victim and step of all cases."""
    return [
        pytest.param(kind, victim, step, id=f"{kind}-{victim}-{step}".replace(" ", "_"))
        for kind in KINDS
        for victim, steps in STEPS.items()
        for step in steps
        if kind in SERVED or not victim.startswith("database")
    ]


def number_of(step: str) -> int:
    """Return at which time of a step the third transaction is."""
    if step in {"insert", "committed"}:
        return 5  # each transaction has two messages
    return 3 if step in OPEN else 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("kind", "victim", "step"), cases())
def test_killed_at_a_step(kind, victim, step, servers, broker, forks, tmp_path):
    """What is committed is stored once and in order, what is not is nowhere, whoever dies where."""
    with place(kind, servers, broker, forks, tmp_path / "crew") as here:
        if victim.endswith("compensator"):
            here.crew.start("first", count=COUNT, compensate=False).said("done")
            stands = here.crew.start("stands", stop_at=step)
        else:
            stands = here.crew.start(
                "first", count=COUNT, compensate=False, stop_at=step, stop_number=number_of(step)
            )
        stands.stands(step)
        if victim in {"application", "compensator"}:
            stands.kill()
        elif victim.startswith("broker"):
            broker.kill()
            stands.go_on()
            broker.start()
        else:
            servers.kill(kind)
            stands.go_on()
            servers.again(kind)
        here.crew.start("second", count=COUNT).said("done")
        if victim != "application":
            here.crew.members[0].said("done")
        verdict = here.judge()
        third = is_there(here, THIRD)
        here.crew.end()
    assert verdict.committed >= COUNT
    if victim == "application":
        assert verdict.unknown == 0
        if step in OPEN:
            assert verdict.committed == COUNT + 2
            assert not third, "the transaction was not committed"
        elif step == "committed":
            assert verdict.committed == COUNT + 3
            assert third, "the transaction was committed"
    elif victim == "database":
        assert verdict.unknown <= 1 + (step in {"send", "response", "delete"})
        assert verdict.committed + verdict.unknown >= 2 * COUNT
        assert not (third and step in OPEN), "the transaction was not committed"
    else:
        assert verdict.committed == 2 * COUNT, "the application noticed nothing"


def is_there(here: Place, id_: str) -> bool:
    """Return whether an order is in the business table."""
    return id_ in shop.committed(here.engine)
