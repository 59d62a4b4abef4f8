"""A web shop with a database: an order and its message, both or neither; an invoice, once.

ternmq dev                       # a broker, in one terminal
python examples/order_api.py     # in another: takes orders, and bills them
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient
from pydantic import BaseModel
from sqlalchemy import event, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import ternmq
from ternmq.reliable import Inbox, Outbox, idempotent

DATABASE = f"sqlite+aiosqlite:///{tempfile.mkdtemp()}/shop.db"  # in yours: postgresql+psycopg://...


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    cents: Mapped[int]


class Invoice(Base):
    __tablename__ = "invoices"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int]
    cents: Mapped[int]


class Placed(BaseModel):
    """The message: what others need to know of an order."""

    order_id: int
    cents: int


engine = create_async_engine(DATABASE)
Session = async_sessionmaker(engine, expire_on_commit=False)
client = ternmq.connect()
outbox = Outbox(client, engine)
inbox = Inbox(engine)


# SQLite only: begin each transaction as one that writes, since the outbox writes, too.
@event.listens_for(engine.sync_engine, "connect")
def connected(raw: object, _: object) -> None:
    raw.isolation_level = None  # type: ignore[attr-defined]


@event.listens_for(engine.sync_engine, "begin")
def begun(connection: object) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")  # type: ignore[attr-defined]


# -- the web application --------------------------------------------------------------------------


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await asyncio.to_thread(outbox.prepare)  # in yours: `ternmq outbox prepare`, once
    async with outbox:
        # Here the handlers run beside the requests; `ternmq worker order_api:client` runs them in
        # a process of their own.
        worker = asyncio.create_task(client.run(signals=False))
        yield
        client.stop()
        await worker
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


async def transaction() -> AsyncIterator[AsyncSession]:
    """Open a transaction for a request; it is committed before the answer, or rolled back."""
    async with Session() as session, session.begin():
        yield session


@app.post("/orders")
async def order(
    customer: str, cents: int, session: Annotated[AsyncSession, Depends(transaction)]
) -> int:
    placed = Order(customer=customer, cents=cents)
    session.add(placed)
    await session.flush()  # it has its id now
    message = Placed(order_id=placed.id, cents=cents)
    await client.send("orders", message, key=f"order-{placed.id}", within=session)
    if cents > 100_000:
        raise HTTPException(402, "too much to be paid later")  # row and message are rolled back
    return placed.id


@app.get("/invoices")
async def invoices(session: Annotated[AsyncSession, Depends(transaction)]) -> list[int]:
    return sorted(await session.scalars(select(Invoice.order_id)))


# -- the worker -----------------------------------------------------------------------------------


@client.handler("orders", group="billing", start="earliest")
@idempotent(inbox)
async def bill(placed: Placed, session: AsyncSession) -> None:
    """Write an invoice in one transaction with the id of the message: it is written once."""
    session.add(Invoice(order_id=placed.order_id, cents=placed.cents))
    await client.send("invoices", {"order_id": placed.order_id})  # of this transaction, too


# -- both at work ---------------------------------------------------------------------------------


def main() -> None:
    with TestClient(app) as web:
        for customer, cents in (("Ada", 1250), ("Bob", 999_999), ("Cy", 700)):
            answer = web.post("/orders", params={"customer": customer, "cents": cents})
            print(f"{customer}: {answer.status_code} {answer.json()}")
        until = time.monotonic() + 30
        while len(web.get("/invoices").json()) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        outbox.flush()
        print("invoices of orders:", web.get("/invoices").json())
        print("rows left in the outbox:", len(outbox.rows()))
        print("handled once:", inbox.stats().handled)


if __name__ == "__main__":
    main()
