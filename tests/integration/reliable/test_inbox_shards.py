"""Shards of an inbox, and an inbox on one of them alone."""

from __future__ import annotations

from pathlib import Path

import pytest

import ternmq
from ternmq.reliable import Inbox
from tests.databases import Servers, run


def shards_in(database: str) -> list[tuple[object, ...]]:
    """Return the names that a database knows."""
    rows = run(database, "SELECT component, version FROM ternmq_schema ORDER BY component")
    names = [bytes(one).decode() if isinstance(one, bytes) else str(one) for one, _ in rows]
    return [(name, rows[i][1]) for i, name in enumerate(names) if name.startswith("shard:")]


def test_a_shard_is_no_inbox_alone(database: str, servers: Servers, tmp_path: Path) -> None:
    """Messages that another shard has handled would have been handled again."""
    other = servers.new("sqlite", tmp_path)
    with Inbox(shards={"a": database, "b": other}) as inbox:
        inbox.prepare()
    with Inbox(database) as alone:
        with pytest.raises(ternmq.ShardsChanged, match=r"is shard 'a' of a, b; .* only database"):
            alone.prepare()
        assert shards_in(database) == [("shard:a", 1), ("shard:b", 0)]
        assert alone.prepare(moved=True)[-1] == "noted that it is no shard any more"
        assert shards_in(database) == []
        alone.prepare()
    with Inbox(shards={"a": database, "b": other}) as inbox:
        inbox.prepare()
        assert shards_in(database) == [("shard:a", 1), ("shard:b", 0)]


def test_one_database_is_not_two_shards(database: str) -> None:
    with pytest.raises(ternmq.InvalidRequest, match="shards 'a' and 'c' are one database"):
        Inbox(shards={"a": database, "b": f"{database}-other", "c": database})
