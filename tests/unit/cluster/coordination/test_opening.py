"""A coordinator from its URL: what is wrong with one is told, and what is missing."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from ternmq.cluster.coordination.database import DatabaseCoordinator
from ternmq.cluster.coordination.opening import open_coordinator
from ternmq.cluster.coordination.port import Unknown
from ternmq.cluster.coordination.zookeeper import ZooKeeperCoordinator
from ternmq.model.errors import SettingsError


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "a coordinator is named by a URL, such as zk://"),
        ("nonsense", "a coordinator is named by a URL, such as zk://"),
        ("etcd://a", "use one of zk, sqlite"),
        ("postgres://a/b", "did you mean postgresql://"),
        ("zookeeper://a", "cannot begin with 'zookeeper'"),
        ("zk://", "not a server of ZooKeeper: ''"),
        ("zk://a,,b/x", "not a server of ZooKeeper: ''"),
        ("zk://a:port", "not a server of ZooKeeper: 'a:port'"),
        ("zk://a:0", "not a server"),
        ("zk://a:70000", "not a server"),
        ("zk://user@a/x", "zk://\\[USER:PASSWORD@\\]"),
        ("zk://a/x?y=1", "zk://\\[USER:PASSWORD@\\]"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("mysql://a:port/x", "not the URL of a database: mysql://"),
    ],
)
async def test_a_wrong_url_is_told(url: str, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        await open_coordinator(url)


@pytest.mark.parametrize(
    ("url", "module", "text"),
    [
        ("zk://a", "kazoo", "kazoo is not installed.*ternmq\\[cluster\\]"),
        ("sqlite:////tmp/x", "sqlalchemy", "SQLAlchemy is not installed.*ternmq\\[cluster\\]"),
        ("mysql://a/b", "pymysql", "pymysql is not installed.*ternmq\\[cluster,mysql\\]"),
        ("postgresql://a/b", "psycopg", "psycopg is not installed.*ternmq\\[cluster,postgresql\\]"),
    ],
)
async def test_a_missing_package_is_told(
    monkeypatch: pytest.MonkeyPatch, url: str, module: str, text: str
) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any, **named: Any) -> Any:
        if name.partition(".")[0] == module or (
            module in {"kazoo", "sqlalchemy"}
            and name in {f"ternmq.cluster.coordination.{one}" for one in ("database", "zookeeper")}
        ):
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SettingsError, match=text):
        await open_coordinator(url)


async def test_a_coordinator_that_is_away_answers_unknown() -> None:
    urls = {
        "zk://user:secret@127.0.0.1:1/x/y/": ZooKeeperCoordinator,
        "mysql://user:secret@127.0.0.1:1/x": DatabaseCoordinator,
        "postgresql://user:secret@127.0.0.1:1/x": DatabaseCoordinator,
        "sqlite:////nowhere/at/all.db": DatabaseCoordinator,
    }
    for url, kind in urls.items():
        one = await open_coordinator(url, deadline_s=5)
        try:
            assert isinstance(one, kind)
            for answer in (
                await one.read("leadership/g"),
                await one.create("leadership/g", b""),
                await one.swap("leadership/g", 1, b""),
                await one.announce("a", b""),
                await one.announced(),
            ):
                assert isinstance(answer, Unknown)
                assert answer.why
                assert "\n" not in answer.why
                assert "secret" not in answer.why
        finally:
            await one.close()
