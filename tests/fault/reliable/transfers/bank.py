"""The business: transfers of money, over the account ``clearing``.

A teller *asks* for a transfer: a row, and a message. Then come three stages, each with an inbox and
an outbox on the same database::

    asked --debit--> debited --credit--> credited --confirm--> confirmed

``debit`` moves the money from the source to ``clearing``, ``credit`` from there to the target, and
``confirm`` moves none. Each writes a row into its table, and a message to the next topic. So the
sum of all accounts is the same after each transaction. Nothing in the tables would refuse a second
row: an effect that happens twice is seen.

Each transaction has a *token*, in its row and in its message: what was rolled back can be told from
what another try of the same transfer has committed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import sqlalchemy as sa

METADATA = sa.MetaData()
ACCOUNTS: Final = sa.Table(
    "money", METADATA,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("cents", sa.BigInteger, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
)  # fmt: skip
CLEARING: Final = "clearing"
START_CENTS: Final = 1_000_000
"""Of each account at the beginning, save ``clearing``, which has none."""


def _table(name: str) -> sa.Table:
    return sa.Table(
        name, METADATA,
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("source", sa.String(32), nullable=False),
        sa.Column("target", sa.String(32), nullable=False),
        sa.Column("cents", sa.BigInteger, nullable=False),
        sa.Column("token", sa.String(64), nullable=False),
    )  # fmt: skip


class Transfer(msgspec.Struct, frozen=True):
    """The body of a message.

    Attributes:
        id: Of the transfer.
        source: Account that pays.
        target: Account that is paid.
        cents: How much.
        token: Of the transaction that sent this message.
        version: The source's, after the debit: it counts debits.
    """

    id: str
    source: str
    target: str
    cents: int
    token: str
    version: int = 0

    @property
    def what(self) -> tuple[str, str, str, int]:
        """What is the same at each stage."""
        return self.id, self.source, self.target, self.cents


@dataclass(slots=True, frozen=True)
class Stage:
    """A stage, or what the teller does.

    Attributes:
        name: Of the stage; its group has it.
        takes: End of the topic from which it takes; empty: the teller's.
        sends: End of the topic to which it sends, and the table of its rows.
        table: The table.
        pays: Which account it takes money from: ``source``, ``clearing``; empty: it moves none.
        gets: Which account it gives it to.
        ordered: Its messages have the source as ordering key.
    """

    name: str
    takes: str
    sends: str
    table: sa.Table
    pays: str = ""
    gets: str = ""
    ordered: bool = False


ASK: Final = Stage("ask", "", "asked", _table("asked"))
DEBIT: Final = Stage(
    "debit", "asked", "debited", _table("debited"), "source", CLEARING, ordered=True
)
CREDIT: Final = Stage("credit", "debited", "credited", _table("credited"), CLEARING, "target")
CONFIRM: Final = Stage("confirm", "credited", "confirmed", _table("confirmed"))
STAGES: Final = (DEBIT, CREDIT, CONFIRM)
ALL: Final = (ASK, *STAGES)


def names(accounts: int) -> list[str]:
    """Return the names of the accounts, without ``clearing``."""
    return [f"a{number}" for number in range(accounts)]


def make(engine: sa.Engine, accounts: int) -> None:
    """Make the tables of the business, and the accounts."""
    METADATA.create_all(engine)
    rows = [{"name": name, "cents": START_CENTS, "version": 0} for name in names(accounts)]
    with engine.begin() as connection:
        connection.execute(
            sa.insert(ACCOUNTS), [*rows, {"name": CLEARING, "cents": 0, "version": 0}]
        )


def changes(stage: Stage, transfer: Transfer, token: str) -> list[sa.Executable]:
    """Return the statements of a stage. ``clearing``, which all lock, is the last to be locked."""
    row = {
        "id": transfer.id, "source": transfer.source, "target": transfer.target,
        "cents": transfer.cents, "token": token,
    }  # fmt: skip
    moves = [(stage.pays, -transfer.cents), (stage.gets, transfer.cents)] if stage.pays else []
    moves.sort(key=lambda move: move[0] == CLEARING)
    return [
        sa.insert(stage.table).values(row),
        *itertools.starmap(_move, [(_account(place, transfer), cents) for place, cents in moves]),
    ]


def _account(place: str, transfer: Transfer) -> str:
    return {"source": transfer.source, "target": transfer.target}.get(place, place)


def _move(name: str, cents: int) -> sa.Executable:
    counts = 1 if cents < 0 and name != CLEARING else 0
    return (
        sa.update(ACCOUNTS)
        .where(ACCOUNTS.c.name == name)
        .values(cents=ACCOUNTS.c.cents + cents, version=ACCOUNTS.c.version + counts)
    )


def version_of(source: str) -> sa.Select[int]:
    """Return the query for the version of an account."""
    return sa.select(ACCOUNTS.c.version).where(ACCOUNTS.c.name == source)


def sending(stage: Stage, topic: str, sent: Transfer) -> tuple[str, dict[str, Any]]:
    """Return to which topic a stage sends, and the other arguments of ``send``."""
    return f"{topic}-{stage.sends}", {"ordering_key": sent.source} if stage.ordered else {}


# -- from outside ----------------------------------------------------------------------------------


def total(engine: sa.Engine) -> int:
    """Return the sum of all accounts, as one statement sees it."""
    with engine.connect() as connection:
        return int(connection.execute(sa.select(sa.func.sum(ACCOUNTS.c.cents))).scalar_one())


def count(engine: sa.Engine, stage: Stage) -> int:
    """Return how many rows the table of a stage has."""
    with engine.connect() as connection:
        found = connection.execute(sa.select(sa.func.count()).select_from(stage.table))
        return int(found.scalar_one())


def rows(engine: sa.Engine, stage: Stage) -> list[Transfer]:
    """Return the rows of a stage, as transfers."""
    table = stage.table.c
    asked = sa.select(table.id, table.source, table.target, table.cents, table.token)
    with engine.connect() as connection:
        return [Transfer(*row) for row in connection.execute(asked)]


def accounts(engine: sa.Engine) -> dict[str, tuple[int, int]]:
    """Return each account: name -> cents and version."""
    asked = sa.select(ACCOUNTS.c.name, ACCOUNTS.c.cents, ACCOUNTS.c.version)
    with engine.connect() as connection:
        return {name: (cents, version) for name, cents, version in connection.execute(asked)}
