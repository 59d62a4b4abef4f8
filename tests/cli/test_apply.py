"""``ternmq apply``: topics and groups as an application declares them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ternmq
from ternmq.cli.terminal.exits import ExitCode
from ternmq.cli.worker.worker import find
from ternmq.client.admin.admin import Admin
from ternmq.model.errors import ConnectionLost
from ternmq.testing import broker
from tests.black_box.process import DEADLINE
from tests.cli.conftest import CommandLine, Processes

APPLICATION = """
import ternmq

client = ternmq.connect("ternmq://127.0.0.1:1")  # not the broker that apply asks
client.declare(ternmq.Topic("{topic}", queues={queues}, retention=3600))

@client.handler("{topic}", group="billing", retry=ternmq.RetryPolicy(first=5), tags="{tags}"{more})
async def handle(body: object) -> None: ...
"""


@pytest.fixture
def application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str
) -> Iterator[Callable[..., str]]:
    """Write an application in the folder that commands run in; return its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    written: list[str] = []

    def write(queues: int = 3, tags: str = "a", more: str = "") -> str:
        name = f"application_{topic.replace('-', '_')}_{len(written)}"
        text = APPLICATION.format(topic=topic, queues=queues, tags=tags, more=more)
        (tmp_path / f"{name}.py").write_text(text)
        written.append(name)
        return f"{name}:client"

    yield write
    for name in written:
        sys.modules.pop(name, None)


def test_topics_and_groups_are_compared_made_and_changed(
    cli: CommandLine, topic: str, application: Callable[..., str]
) -> None:
    first = application()
    compared = cli("apply", first, "--dry-run", code=8)
    assert compared.out.splitlines() == [
        f"+ topic {topic}: would be created with queues 3, retention 1h",
        (
            f"+ group billing on {topic}: would be created with tags 'a', "
            "retry 5s x 2, cap 5m, jitter 20%, 16 attempts, then dead-letter"
        ),
    ]
    assert "2 differences" in compared.err
    cli("topic", "show", topic, code=4)  # a dry run changes nothing

    assert cli("apply", first).err == "made 2 changes\n"
    assert cli("topic", "show", topic, "--json").json["retention_s"] == 3600
    assert cli("group", "show", topic, "billing", "--json").json["retry"]["first_s"] == 5
    assert cli("apply", first, "--dry-run").err == "everything is as declared\n"

    changed = cli("apply", application(queues=4, tags="b"))
    assert changed.out.splitlines() == [
        f"~ topic {topic}: queues 3 -> 4",
        f"~ group billing on {topic}: tags 'a' -> 'b'",
    ]
    assert cli("group", "show", topic, "billing", "--json").json["tags"] == "b"

    filtered = application(queues=4, tags="b", more=", filter='n >= 10'")
    assert cli("apply", filtered, "--dry-run", code=8).out.splitlines() == [
        f"~ group billing on {topic}: filter '' -> 'n >= 10'"
    ]
    assert cli("apply", filtered).err == "made 1 change\n"
    assert cli("group", "show", topic, "billing", "--json").json["filter"] == "n >= 10"
    same = application(queues=4, tags="b", more=", filter='(n>=10)'")
    assert cli("apply", same, "--dry-run").err == "everything is as declared\n"

    cli("group", "set", topic, "billing", "--tags", "", "--filter", "")
    cli("group", "set", topic, "billing", "--mode", "queue_lock")
    shared = application(queues=4, tags="b", more=", mode='shared'")
    assert cli("apply", shared).out.splitlines()[-1] == (
        f"~ group billing on {topic}: mode queue_lock -> shared"
    )
    assert cli("group", "show", topic, "billing", "--json").json["mode"] == "shared"


def test_a_group_wants_a_topic_that_is_there_or_declared(
    cli: CommandLine, topic: str, application: Callable[..., str], tmp_path: Path
) -> None:
    name = application()
    file = tmp_path / f"{name.removesuffix(':client')}.py"
    text = file.read_text()
    declared = next(line for line in text.splitlines() if line.startswith("client.declare"))
    file.write_text(text.replace(declared, ""))
    with broker(settings={"create_topics": False}) as strict:
        for dry_run in ([], ["--dry-run"]):
            said = cli("apply", name, *dry_run, "--url", strict.url, code=8)
            assert said.out.splitlines() == [
                f"! group billing on {topic}: there is no topic {topic}, and none is declared"
            ]
            assert f"`ternmq topic create {topic}`" in said.err
        cli("topic", "create", topic, "--url", strict.url)
        cli("apply", name, "--url", strict.url)
    # Where topics are made by their first use, the group's is.
    cli("apply", name, "--dry-run", code=8)
    assert cli("apply", name).err == "made 1 change\n"
    cli("topic", "show", topic)


def test_what_cannot_be_changed_is_said_and_nothing_is(
    cli: CommandLine, topic: str, application: Callable[..., str]
) -> None:
    cli("apply", application(queues=3))
    wanted = application(queues=2, tags="b")
    for dry in (("--dry-run",), ()):
        refused = cli("apply", wanted, *dry, code=8)
        assert f"`ternmq topic delete {topic}`" in refused.err
        assert f"! topic {topic}: queues 3 -> 2 cannot be changed" in refused.out
        assert "1 of 2 differences cannot be changed" in refused.err
    assert cli("group", "show", topic, "billing", "--json").json["tags"] == "a"


def test_a_filter_where_order_is_kept_is_found_before_anything_is_made(
    cli: CommandLine, topic: str, application: Callable[..., str], tmp_path: Path
) -> None:
    name = application()
    file = tmp_path / f"{name.removesuffix(':client')}.py"
    # A worker asks the broker that the program names: here the one of the environment.
    text = file.read_text().replace('"ternmq://127.0.0.1:1"', "")
    file.write_text(text.replace("queues=3,", "ordered=True,"))
    for command in (("apply", name, "--dry-run"), ("apply", name), ("worker", name)):
        said = cli(*command, code=8)
        told = said.out + said.err
        assert (
            f"group billing on {topic}: tags 'a' is not possible: topic {topic} is ordered, and an "
            f"ordered group cannot have a tag filter"
        ) in told
        assert f'state mode="shared" for group billing on {topic}, or leave its tags out' in told
        assert "ternmq group delete" not in told  # there is none
        cli("topic", "show", topic, code=4)  # nothing was made
    sys.modules.pop(name.removesuffix(":client"))
    file.write_text(file.read_text().replace('group="billing",', 'group="billing", mode="shared",'))
    assert cli("apply", name).err == "made 2 changes\n"
    assert cli("group", "show", topic, "billing", "--json").json["tags"] == "a"


def test_what_was_made_before_the_connection_was_lost_is_said(
    cli: CommandLine,
    topic: str,
    application: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def lost(*_: object) -> None:
        raise ConnectionLost("the connection ended before the answer")

    name = application()
    with monkeypatch.context() as patch:
        patch.setattr(Admin, "join_group", lost)
        ended = cli("apply", name, code=ExitCode.UNKNOWN)
        assert ended.out == f"+ topic {topic}: created with queues 3, retention 1h\n"
        assert "the connection ended before the answer" in ended.err
        cli("topic", "delete", topic, "--yes")

        async def applied() -> None:
            async with ternmq.connect(cli.url) as client:
                await find(name).topology.apply(client.admin)

        with pytest.raises(ConnectionLost) as caught:
            asyncio.run(applied())
    assert caught.value.__notes__ == [
        f"Made before: topic {topic}: created with queues 3, retention 1h."
    ]
    assert cli("apply", name).err == "made 1 change\n"


def test_differences_as_json(cli: CommandLine, topic: str, application: Callable[..., str]) -> None:
    cli("apply", application(queues=3))
    (change,) = cli("apply", application(queues=5), "--dry-run", "--json", code=8).json
    assert change == {
        "action": "change", "topic": topic, "group": "", "setting": "queues", "has": "3",
        "wants": "5", "why": "", "remedy": "",
    }  # fmt: skip


def test_a_client_on_which_nothing_is_declared_is_a_mistake(processes: Processes) -> None:
    (processes.folder / "empty.py").write_text("import ternmq\nclient = ternmq.connect()\n")
    for dry_run in ([], ["--dry-run"]):
        ended = processes.run("apply", "empty:client", *dry_run, code=2)
        assert "nothing is declared on empty:client: no topic, and no handler" in ended.err


def test_where_a_module_asked_the_broker_in_vain_is_said(processes: Processes) -> None:
    code = "import ternmq.sync\nclient = ternmq.sync.connect()\n\nclient.admin.topic('none')\n"
    (processes.folder / "asking.py").write_text(code)
    process = processes.start("apply", "asking:client", stderr=subprocess.PIPE)
    _, err = process.communicate(timeout=DEADLINE)
    first, second = err.decode().splitlines()
    assert first.endswith("asking.py, line 4:")
    assert first.startswith("importing 'asking' failed in ")
    assert "no topic 'none'" in second
    assert process.returncode == 4


@pytest.mark.parametrize("option", [True, False])
@pytest.mark.parametrize("command", ["apply", "worker"])
def test_a_wrong_address_is_no_mistake_of_the_program(
    processes: Processes, command: str, *, option: bool
) -> None:
    code = "import ternmq\n\nclient = ternmq.connect()\n"
    (processes.folder / "right.py").write_text(code)
    wrong = "http://127.0.0.1:1"
    if not option:
        processes.environment["TERNMQ_URL"] = wrong
    given = ["--url", wrong] if option else []
    ended = processes.run(*given, command, "right:client", code=2)
    assert wrong in ended.err
    assert "right.py" not in ended.err
    (processes.folder / "right.py").write_text(code.replace("()", "('http://127.0.0.1:2')"))
    processes.environment.pop("TERNMQ_URL", None)
    assert "right.py, line 3:" in processes.run("worker", "right:client", code=2).err


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("no_such_module:client", "no module 'no_such_module'"),
        ("json:client", "has no 'client'"),
        ("json", "is not MODULE:CLIENT"),
        ("json:dumps", "ternmq.connect"),
    ],
)
def test_what_is_no_client_is_said(cli: CommandLine, target: str, said: str) -> None:
    assert said in cli("apply", target, code=2).err


@pytest.mark.parametrize(
    ("code", "status", "said", "lines"),
    [
        ("def x(:\n", 2, "SyntaxError", 6),
        ("def x():\nreturn 1\n", 2, "IndentationError", 6),
        ("from os import nosuchname\n", 2, "ImportError", 6),
        ("def f():\n    return 1 / 0\nf()\n", 1, "ZeroDivisionError", 8),
        ("import os\nos.nothing\n", 1, "AttributeError", 5),
        ("int('x')\n", 1, "ValueError", 5),
        ("import nosuchmodule\n", 2, "imports 'nosuchmodule', which was not found", 1),
    ],
)
def test_an_application_that_cannot_be_imported(
    processes: Processes, code: str, status: int, said: str, lines: int
) -> None:
    """The application's frames are shown, and none of those that import it."""
    (processes.folder / "broken.py").write_text(code)
    for command in ("apply", "worker"):
        process = processes.start(command, "broken:client", stderr=subprocess.PIPE)
        _, err = process.communicate(timeout=DEADLINE)
        told = err.decode()
        assert process.returncode == status, told
        assert said in told
        assert "broken.py" in told
        assert not [own for own in ("ternmq/cli", "importlib", "pkgutil") if own in told], told
        # Newer Pythons mark the place below a line of code.
        shown = [line for line in told.splitlines() if line.strip(" ~^")]
        assert len(shown) <= lines, told
