"""Metrics of the budgets: what apps hold of them, and how often one had to wait.

Apps are labels only while a budget is more than half used, and then only the ``MOST`` apps that
hold most of it: a scrape stays short, however many apps there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from typing import Final

from ternmq.server.desk.accounts import Account, Places
from ternmq.server.desk.desk import Desk
from ternmq.server.telemetry.families import Numbers, counter_by, gauge, gauge_by

MOST: Final = 8
"""Most apps that are labels of one budget."""


def budget_families(desk: Desk, connections: Places) -> Iterator[Numbers]:
    """Yield the families of budgets and places. Not thread-safe: call it from the broker's loop.

    Args:
        desk: The accounts of all apps, and the places of requests that wait.
        connections: The places of connections.
    """
    accounts = desk.accounts
    yield counter_by(
        "held_back",
        "How often an app had to wait, was cut off or was refused. The label is the reason:"
        " `requests` without an answer, `answers` that it did not read, `unfinished` requests,"
        " `connections`, or requests that are `waiting`.",
        ("what",),
        [
            (("requests",), accounts.pending.held_back),
            (("answers",), accounts.unwritten.held_back),
            (("unfinished",), accounts.unfinished.held_back),
            (("connections",), connections.refused),
            (("waiting",), desk.waiting.refused),
        ],
    )
    yield gauge(
        "apps_connected",
        "Apps that are connected, or whose unread answers still count after the connection ended.",
        len(accounts.by_app),
    )
    most = gauge_by(
        "app_bytes",
        "Bytes of a budget (`requests`, `answers`, `unfinished`) that an app holds. Only the"
        f" {MOST} apps that hold most have a value, and only while more than half of the budget is"
        " used.",
        ("app", "what"),
        [],
    )
    for what, budget, of in (
        ("requests", accounts.pending, "pending"),
        ("answers", accounts.unwritten, "unwritten"),
        ("unfinished", accounts.unfinished, "unfinished"),
    ):
        if 2 * budget.held > budget.limit:
            held: list[tuple[str, Account]] = [
                (app, getattr(one, of)) for app, one in accounts.by_app.items()
            ]
            for app, account in nlargest(MOST, held, key=lambda one: one[1].held):
                if account.held:
                    most.add((app, what), account.held)
    yield most
    yield gauge(
        "waiting_requests",
        "Pulls and reads that wait for messages; limit `limits.waiters`.",
        desk.waiting.taken,
    )
