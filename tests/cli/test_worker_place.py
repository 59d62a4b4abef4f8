"""``ternmq worker`` asks the broker that the command line names, or refuses to."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import pytest

from ternmq.cli.commands import Command
from ternmq.cli.main import ternmq as root
from ternmq.client.client import Client
from tests.cli.conftest import CommandLine

_OPEN = "import ternmq\nclient = ternmq.connect()\n"
_FIXED = "import ternmq\nclient = ternmq.connect('ternmq://localhost:1', app='a', token='t')\n"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Client]:
    """The clients that were run; nothing is asked."""
    found: list[Client] = []

    async def run(self: Client, *, signals: bool | None, drain_timeout: float | None) -> None:
        assert signals
        found.append(self)

    monkeypatch.setattr(Client, "run", run)
    monkeypatch.chdir(tmp_path)
    for name, text in (("app_open", _OPEN), ("app_fixed", _FIXED)):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(os, "environ", os.environ.copy())
    return found


FLAGS = ["--url", "ternmq://there:7", "--app", "shop", "--token", "secret"]


@pytest.mark.parametrize("before", [True, False])
def test_the_command_line_says_where(cli: CommandLine, ran: list[Client], before: bool) -> None:
    words = ["worker", "app_open:client"]
    cli(*(FLAGS + words if before else words + FLAGS))
    (client,) = ran
    assert (str(client.options.address), client.options.app, client.options.token) == (
        "ternmq://there:7", "shop", "secret",
    )  # fmt: skip


def test_without_options_the_environment_says_where(cli: CommandLine, ran: list[Client]) -> None:
    cli("worker", "app_open:client")
    assert str(ran[0].options.address) == cli.url


def test_a_context_that_is_named_counts_and_the_one_in_use_does_not(
    cli: CommandLine, ran: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("context", "add", "there", "--url", "ternmq://there:7", "--app", "shop", "--token", "x")
    monkeypatch.delenv("TERNMQ_URL")
    cli("worker", "app_open:client")
    assert str(ran.pop().options.address) == "ternmq://localhost:7117"
    monkeypatch.delitem(sys.modules, "app_open")
    monkeypatch.setenv("TERNMQ_CONTEXT", "there")
    cli("worker", "app_open:client")
    assert (str(ran[0].options.address), ran[0].options.app) == ("ternmq://there:7", "shop")
    assert (
        "did you mean there?" in cli("worker", "app_open:client", "--context", "ther", code=4).err
    )


@pytest.mark.parametrize("flag", ["--url", "--app", "--token"])
def test_what_the_code_says_otherwise_is_refused(
    cli: CommandLine, ran: list[Client], flag: str
) -> None:
    value = FLAGS[FLAGS.index(flag) + 1]
    said = cli(flag, value, "worker", "app_fixed:client", code=2).err
    name = flag.removeprefix("--").replace("url", "address")
    assert f"the code sets the {name} " in said
    assert "but the command line sets it to " in said
    assert ("ternmq://localhost:1" in said) == ("ternmq://there:7" in said) == (flag == "--url")
    assert "secret" not in said
    assert not ran


def test_the_same_broker_may_be_named_twice(cli: CommandLine, ran: list[Client]) -> None:
    cli("worker", "app_fixed:client", "--url", "ternmq://a:t@localhost:1")
    assert ran[0].options.app == "a"


def test_an_app_may_be_named_for_the_broker_of_the_code(
    cli: CommandLine, ran: list[Client], tmp_path: Path
) -> None:
    (tmp_path / "app_open.py").write_text(_OPEN.replace("()", "('ternmq://localhost:1')"))
    cli("worker", "app_open:client", "--app", "shop", "--token", "secret")
    options = ran[0].options
    assert (str(options.address), options.app, options.token) == (
        "ternmq://localhost:1", "shop", "secret",
    )  # fmt: skip


def test_a_context_that_contradicts_the_code_is_named(
    cli: CommandLine, ran: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("context", "add", "there", "--url", "ternmq://there:7")
    monkeypatch.setenv("TERNMQ_CONTEXT", "there")
    said = cli("worker", "app_fixed:client", code=2).err
    assert (
        "the code sets the address to ternmq://localhost:1, but the context there sets it to "
        "ternmq://there:7"
    ) in said
    assert not ran


def test_what_is_not_for_it_is_refused(cli: CommandLine, ran: list[Client]) -> None:
    assert "timeout" in cli("worker", "app_open:client", "--timeout", "5s", code=2).err
    assert not ran


def test_commands_that_ask_no_broker_refuse_to_be_told_of_one(cli: CommandLine) -> None:
    for command in (
        ["serve", "--data", "x"], ["dev"], ["completion", "bash"], ["context", "list"],
        ["journal", "verify", "."],
    ):  # fmt: skip
        said = cli("--url", "ternmq://there:7", *command, code=2).err
        assert "does not use --url" in said, command


def test_every_command_takes_a_broker_or_refuses_one() -> None:
    """By the class that does it: none is of another."""

    def leaves(group: click.Group, context: click.Context) -> list[click.Command]:
        found: list[click.Command] = []
        for name in group.list_commands(context):
            one = group.get_command(context, name)
            assert one is not None
            found += leaves(one, context) if isinstance(one, click.Group) else [one]
        return found

    for one in leaves(root, click.Context(root)):
        assert type(one).invoke is Command.invoke, one.name
