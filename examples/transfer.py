"""Transfers in steps: the money leaves one account, then comes to another, or comes back.

pip install '.[reliable]'
ternmq dev                                # a broker, in one terminal
python examples/transfer.py bank.db       # in another

Each transfer is an orderly session of three steps. A step is one transaction of the database, and
happens once, even if this program is killed: start it again, and it goes on. If a step fails, the
steps before it are undone, the last one first.
"""

import sys
import threading
import time

import sqlalchemy as sa
from sqlalchemy.orm import Session

import ternmq
import ternmq.sync
from ternmq.reliable import Outbox, SequenceStep, Steps, sequence

TRANSFERS = ternmq.Topic("transfers", ordered=True)

client = ternmq.sync.connect()
engine = sa.create_engine(f"sqlite:///{sys.argv[1]}", connect_args={"timeout": 30})
outbox = Outbox(client, engine)
transfers = Steps(client, TRANSFERS, group="bank", database=engine, on_failure="compensate")


def prepare() -> None:
    """Make the tables, and accounts with 10 EUR each; the one of Cem is closed."""
    transfers.prepare()
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, cents INTEGER, closed)",
            "CREATE TABLE IF NOT EXISTS transfers (id TEXT PRIMARY KEY, state TEXT)",
            "INSERT OR IGNORE INTO accounts VALUES ('ada', 1000, 0), ('bob', 1000, 0)",
            "INSERT OR IGNORE INTO accounts VALUES ('cem', 1000, 1)",
        ):
            connection.exec_driver_sql(statement)


def transfer(number: int, giver: str, taker: str, cents: int) -> None:
    """Begin a transfer: its row and its steps are written in one transaction, or not at all."""
    with Session(engine) as session, session.begin():
        name = f"transfer-{number}"
        begun = "INSERT OR IGNORE INTO transfers VALUES (:id, 'begun')"
        session.execute(sa.text(begun), {"id": name})
        with sequence(client, TRANSFERS, id=name, within=session) as steps:
            steps.add({"account": giver, "cents": -cents})
            steps.add({"account": taker, "cents": cents})
            steps.add({"state": "done"})


@transfers.step
def do(step: SequenceStep, session: Session) -> None:
    """Do a step, in its transaction; an error rolls it back, and has the others undone."""
    todo = step.value
    if "account" in todo:
        move(session, todo["account"], todo["cents"])
    else:
        mark(session, step.session, todo["state"])


@transfers.undo
def undo(step: SequenceStep, session: Session) -> None:
    """Undo a step that was done."""
    move(session, step.value["account"], -step.value["cents"])
    if step.number == 1:
        mark(session, step.session, "undone")


def move(session: Session, account: str, cents: int) -> None:
    """Add money to an account, or take it away."""
    change = sa.text(
        "UPDATE accounts SET cents = cents + :cents "
        "WHERE name = :name AND NOT closed AND cents + :cents >= 0"
    )
    changed = session.connection().execute(change, {"cents": cents, "name": account})
    if changed.rowcount != 1:
        raise ternmq.Reject(f"the account of {account} is closed, or has too little")


def mark(session: Session, name: str, state: str) -> None:
    """Note what became of a transfer."""
    statement = sa.text("UPDATE transfers SET state = :state WHERE id = :id")
    session.execute(statement, {"state": state, "id": name})


def rows(statement: str) -> list[tuple[object, ...]]:
    """Return rows of the database."""
    with engine.connect() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


def main() -> None:
    """Begin two transfers, and wait for their ends."""
    prepare()
    transfer(1, "ada", "bob", 300)
    transfer(2, "ada", "cem", 500)
    thread = threading.Thread(target=client.run)
    thread.start()
    while rows("SELECT 1 FROM transfers WHERE state = 'begun'"):
        time.sleep(0.05)
    client.stop()
    thread.join()
    outbox.close()
    for name, state in rows("SELECT id, state FROM transfers ORDER BY id"):
        print(name, state)
    for name, cents in rows("SELECT name, cents FROM accounts ORDER BY name"):
        print(name, cents)


if __name__ == "__main__":
    main()
