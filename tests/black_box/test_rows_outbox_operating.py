"""Rows of MISSION, the outbox as operators see it: databases prepared, refused rows decided."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

import ternmq
import ternmq.sync
from ternmq.reliable import Outbox
from tests.black_box.process import DEADLINE, BrokerProcess, wait_until
from tests.databases import Servers, database, run, servers

__all__ = ["database", "servers"]


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker at which topics are created by an operator only."""
    with BrokerProcess("dev", tmp_path / "broker", create_topics="false") as one:
        yield one


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as one:
        yield one


def ternmq_(*arguments: object, code: int = 0) -> str:
    """Run a command as an operator does; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if "TERNMQ" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "ternmq", *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=DEADLINE, env=environment,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout


def listed(url: str, *more: object) -> list[Any]:
    told = ternmq_("outbox", "list", "--database", url, "--json", *more)
    return [json.loads(line) for line in told.splitlines()]


def bodies(client: ternmq.sync.Client, topic: str) -> list[object]:
    try:
        return [one.value for one in client.read(topic)]
    except ternmq.UnknownTopic:
        return []


@pytest.mark.row("J5e")
def test_one_command_prepares_every_instance(
    servers: Servers, tmp_path: Path, strict: BrokerProcess, stack: ExitStack
) -> None:
    """The application names no table, and makes none."""
    urls = [servers.new("sqlite", tmp_path), servers.new("sqlite", tmp_path)]
    ternmq_("outbox", "prepare", *[word for url in urls for word in ("--database", url)])
    client = stack.enter_context(ternmq.sync.connect(strict.url))
    client.admin.create_topic("orders")
    for url in urls:
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        outbox = stack.enter_context(Outbox(client, engine))
        with Session(engine) as session, session.begin():
            client.send("orders", url, within=session)
        outbox.flush(DEADLINE)
    assert bodies(client, "orders") == urls


@pytest.mark.row("J5e")
def test_one_command_prepares_an_instance_of_any_kind(
    database: str, strict: BrokerProcess, stack: ExitStack
) -> None:
    client = stack.enter_context(ternmq.sync.connect(strict.url))
    client.admin.create_topic("orders")
    engine = sa.create_engine(database, poolclass=sa.NullPool)
    outbox = stack.enter_context(Outbox(client, engine))
    with pytest.raises(ternmq.DatabaseNotPrepared, match="ternmq outbox prepare --database URL"):
        client.send("orders", "too early", within=outbox)
    for _ in range(2):
        ternmq_("outbox", "prepare", "--database", database)
    client.send("orders", "paid", within=outbox)
    outbox.flush(DEADLINE)
    assert bodies(client, "orders") == ["paid"]


@pytest.mark.row("K4")
def test_a_row_that_was_refused_too_often_fails_and_is_resent_by_hand(
    database: str, strict: BrokerProcess, stack: ExitStack
) -> None:
    """The topic is missing; an operator sees it, creates it, and has the row sent again."""
    ternmq_("outbox", "prepare", "--database", database)
    client = stack.enter_context(ternmq.sync.connect(strict.url))
    engine = sa.create_engine(database, poolclass=sa.NullPool)
    outbox = stack.enter_context(Outbox(client, engine, attempts=2))
    with Session(engine) as session, session.begin():
        receipt = client.send("orders", {"id": 7}, within=session)
    wait_until(lambda: bool(listed(database, "--state", "failed")), "a failed row is listed")
    [row] = listed(database, "--state", "failed", "--topic", "orders")
    assert row["application_id"] == receipt.id
    assert row["tries"] >= 2
    assert row["error"].startswith("UnknownTopic: ")
    shown = json.loads(ternmq_("outbox", "show", row["seq"], "--database", database, "--json"))
    assert shown["body"] == {"id": 7}

    client.admin.create_topic("orders")
    assert bodies(client, "orders") == []  # nobody tries it any more
    ternmq_("outbox", "resend", row["seq"], "--database", database)
    wait_until(lambda: listed(database) == [], "the row is gone")
    [message] = client.read("orders")
    assert (message.value, message.application_id) == ({"id": 7}, receipt.id)
    assert outbox.stats().duplicates == 0


@pytest.mark.row("J5c")
def test_refused_messages_are_flagged_and_not_retried_for_ever(
    database: str, strict: BrokerProcess, stack: ExitStack
) -> None:
    """Other messages pass them; what has an order waits behind the one that was refused."""
    ternmq_("outbox", "prepare", "--database", database)
    client = stack.enter_context(ternmq.sync.connect(strict.url))
    client.admin.create_topic("orders")
    engine = sa.create_engine(database, poolclass=sa.NullPool)
    outbox = stack.enter_context(Outbox(client, engine, attempts=1, poll=0.02))
    with Session(engine) as session, session.begin():
        for number in range(3):
            client.send("missing", number, ordering_key="k", within=session)
        client.send("missing", "alone", within=session)
        client.send("orders", "passes", within=session)

    def states() -> list[tuple[str, object]]:
        return [(one["state"], one["ordering_key"]) for one in listed(database)]

    flagged = [("failed", "k"), ("held", "k"), ("held", "k"), ("failed", "")]
    wait_until(lambda: states() == flagged, "two rows failed, two are held, one is sent")
    assert bodies(client, "orders") == ["passes"]
    status = json.loads(ternmq_("outbox", "status", "--database", database, "--json"))
    assert (status["failed"], status["held"], status["sending"]) == (2, 2, 0)

    refused = outbox.stats().refused
    scans = outbox.stats().scans
    wait_until(lambda: outbox.stats().scans > scans + 3, "it looked for rows again")
    assert outbox.stats().refused == refused
    assert states() == flagged
    assert run(database, "SELECT max(tries) FROM ternmq_outbox") == [(1,)]
