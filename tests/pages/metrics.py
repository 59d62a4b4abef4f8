"""The tables of metrics, asked of a broker that runs."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Final

from ternmq.server.metrics.groups import FAMILIES
from ternmq.server.node.figures import (
    PRIMARY,
    CopyFigures,
    GroupFigures,
    follower_families,
    group_families,
    primary_families,
)
from ternmq.server.telemetry.families import Family
from ternmq.testing import broker

GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "Messages": (
        "messages_sent", "messages_delivered", "messages_settled", "sent_bytes", "sends_total",
        "delivered", "settled", "pulls", "refusals", "audit_",
    ),
    "Groups": (
        "groups", "group_lag", "group_leased", "group_ready", "group_retrying", "group_retries",
        "group_dead", "group_members", "group_unowned", "members", "unowned_", "offline_clients",
        "broadcast_instances",
    ),
    "Disk and journal": (
        "sync", "last_sync", "group_commit", "journal_", "records", "state_", "moved_",
        "removed_", "expired_", "upkeep_", "hold", "sends_blocked", "sends_refused", "unreadable_",
        "disk_", "oldest_", "scrub_", "damaged_",
    ),
    "Connections": (
        "connections", "accepted", "refused_connections", "protocol_errors", "cut_off",
        "stalled", "held_back", "apps_connected", "app_bytes", "waiting_requests", "pending_bytes",
        "unwritten_bytes", "unfinished_bytes", "received_bytes", "written_bytes",
    ),
    "A broker group": ("cluster_", "copy_", "follower_"),
    "The process": ("uptime", "resident", "cpu_", "turns", "longest_turn", "loop_lag"),
}  # fmt: skip
"""Headings, and how the names below them begin. What fits nowhere stands under the last one."""
_REST: Final = "What the broker remembers"


@cache
def families() -> tuple[Family, ...]:
    """Return every metric of a broker, sorted by name."""

    async def ask() -> list[Family]:
        return [numbers.family for numbers in running._server._collector.collect()]

    with broker(manual=False) as running:
        found = asyncio.run_coroutine_threadsafe(ask(), running._loop).result()
    return tuple(sorted([*FAMILIES, *found, *_of_group()]))


def _of_group() -> list[Family]:
    """Return those that only a broker of a broker group has."""
    group = GroupFigures("main", PRIMARY, 1, 2, member=True, writes_open=True, silent_s=0.0)
    parts = group_families(group), primary_families(True, "", ()), follower_families(CopyFigures())
    return [numbers.family for part in parts for numbers in part]


def names() -> set[str]:
    """Return the names that a query may use."""
    return {one.name for one in families()}


def tables() -> str:
    """Return the tables, one a heading."""
    left = list(families())
    parts: list[str] = []
    for title, beginnings in GROUPS.items():
        here = [one for one in left if _short(one.name).startswith(beginnings)]
        left = [one for one in left if one not in here]
        parts += _table(title, here)
    return "\n".join(parts + _table(_REST, left))


def _short(name: str) -> str:
    return name.removeprefix("ternmq_")


def _table(title: str, rows: list[Family]) -> list[str]:
    assert rows, f"no metric stands under {title!r}"
    lines = [f"## {title}\n", "| metric | kind | labels | what it is |", "|---|---|---|---|"]
    for one in rows:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        lines.append(f"| `{one.name}` | {one.kind} | {labels} | {one.text} |")
    return [*lines, ""]
