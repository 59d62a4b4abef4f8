"""Without an optional library, each way to use it ends with an error that names the extra."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

import ternmq
import ternmq.sync
from ternmq.reliable import Inbox, Outbox, Steps, every, surface
from ternmq.reliable.libraries.transactions import AlchemyTransactions

POSTGRESQL, MYSQL = "postgresql://shop@127.0.0.1/shop", "mysql://shop@127.0.0.1/shop"
LIBRARIES = ("sqlalchemy", "greenlet", "psycopg", "pymysql", "django", "redis")


def without(libraries: tuple[str, ...], program: str) -> str:
    """Run a program in which some libraries cannot be imported; return what it prints."""
    hidden = f"import sys; sys.modules.update(dict.fromkeys({libraries!r}))\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", hidden + program],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_needs_no_database_needs_no_library() -> None:
    program = (
        "import ternmq.reliable\n"
        "from ternmq.reliable import Ids, Items, Throttle, batch, sequence, text_id\n"
        "print(len(text_id()) > 10)\n"
    )
    assert without(LIBRARIES, program) == "True\n"


def test_each_name_that_needs_sqlalchemy_says_so() -> None:
    program = (
        "import ternmq, ternmq.reliable\n"
        f"for name in {sorted(surface.__all__)!r}:\n"
        "    try:\n"
        "        getattr(ternmq.reliable, name)\n"
        "    except ternmq.InvalidRequest as error:\n"
        "        print(error)\n"
    )
    said = without(("sqlalchemy",), program).splitlines()
    assert said == [
        f"ternmq.reliable.{name} needs sqlalchemy: pip install 'ternmq[reliable]' "
        "(in a checkout: '.[reliable]')"
        for name in sorted(surface.__all__)
    ]


def test_help_needs_no_optional_library() -> None:
    program = (
        "import pydoc, ternmq.reliable\nprint(pydoc.plain(pydoc.render_doc(ternmq.reliable)))\n"
    )
    said = without(("sqlalchemy",), program)
    assert "client.send(" in said.partition("For readers of the code")[0]
    assert "class Ids" in said
    assert "class Outbox" not in said


WAYS: dict[str, Callable[[ternmq.sync.Client, str], object]] = {
    "outbox": Outbox,
    "inbox": lambda client, url: Inbox(url),
    "shards": lambda client, url: Inbox(shards={"a": url, "b": url}),
    "steps": lambda client, url: Steps(client, "transfers", group="bank", database=url),
    "task": lambda client, url: every(url, "report", seconds=60)(print),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("url", "driver", "extra"),
    [
        (POSTGRESQL, "psycopg", "postgresql"),
        ("postgresql+asyncpg://shop@127.0.0.1/shop", "psycopg", "postgresql"),
        (MYSQL, "pymysql", "mysql"),
        ("mysql+aiomysql://shop@127.0.0.1/shop", "pymysql", "mysql"),
    ],
)
def test_a_driver_that_is_missing(monkeypatch, way, url, driver, extra) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    client = ternmq.sync.connect("ternmq://127.0.0.1:1")
    try:
        with pytest.raises(ternmq.InvalidRequest) as found:
            WAYS[way](client, url)
    finally:
        client.close()
    assert f"needs {driver}: pip install 'ternmq[{extra}]'" in str(found.value)


def test_a_driver_of_the_applications_own_choice_that_is_missing(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with pytest.raises(ternmq.InvalidRequest, match="needs psycopg2: pip install 'psycopg2'"):
        Inbox("postgresql+psycopg2://shop@127.0.0.1/shop")


def test_a_driver_that_does_not_exist() -> None:
    with pytest.raises(ternmq.InvalidRequest, match="knows no such driver"):
        Inbox("postgresql+none://shop:secret@127.0.0.1/shop")


def test_an_outbox_of_django(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "django", None)
    monkeypatch.setitem(sys.modules, "django.db", None)
    monkeypatch.delitem(sys.modules, "ternmq.reliable.libraries.django", raising=False)
    client = ternmq.sync.connect("ternmq://127.0.0.1:1")
    try:
        with pytest.raises(ternmq.InvalidRequest, match=r"pip install 'ternmq\[django\]'"):
            Outbox.django(client)
    finally:
        client.close()


def test_an_inbox_in_redis(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ternmq.InvalidRequest, match=r"pip install 'ternmq\[redis\]'"):
        Inbox.redis("redis://127.0.0.1")


@pytest.mark.parametrize(
    ("package", "wanted"), [("greenlet", "ternmq[sqlalchemy]"), ("aiosqlite", "aiosqlite")]
)
async def test_functions_that_are_awaited(monkeypatch, tmp_path, package, wanted) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    transactions = AlchemyTransactions(f"sqlite:///{tmp_path}/shop.db")
    with pytest.raises(ternmq.InvalidRequest) as found:
        async with transactions.opened_awaited((), lambda work: None, 1.0):
            raise AssertionError("it was opened")
    assert f"needs {package}: pip install '{wanted}'" in str(found.value)
