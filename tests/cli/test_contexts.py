from __future__ import annotations

import io
from pathlib import Path

import pytest

from ternmq.cli.reach import connection, contexts
from ternmq.cli.reach.contexts import Context, Contexts
from ternmq.cli.terminal.exits import Failed
from ternmq.client.connection.address import parse
from tests.cli.conftest import CommandLine


def test_a_context_is_used(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TERNMQ_URL")
    cli("context", "add", "here", "--url", cli.url)
    said = cli("context", "add", "gone", "--url", "ternmq://localhost:1")
    assert "ternmq context use gone" in said.err
    cli("broker", "status")
    cli("broker", "status", "--context", "gone", code=3)
    cli("--context", "gone", "broker", "status", code=3)
    cli("context", "use", "gone")
    cli("broker", "status", code=3)
    cli("broker", "status", "--url", cli.url)
    monkeypatch.setenv("TERNMQ_CONTEXT", "here")
    cli("broker", "status")
    monkeypatch.delenv("TERNMQ_CONTEXT")
    monkeypatch.setenv("TERNMQ_URL", cli.url)
    cli("broker", "status")
    assert cli("context", "list").rows == [
        ["*", "gone", "-", "-", "ternmq://localhost:1"],
        ["-", "here", "-", "-", cli.url],
    ]
    cli("context", "remove", "gone")
    assert [one["name"] for one in cli("context", "list", "--json").json] == ["here"]


def test_a_context_of_several_brokers(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first refuses connections: one command after the other finds the one that serves."""
    monkeypatch.delenv("TERNMQ_URL")
    host = cli.url.removeprefix("ternmq://")
    url = f"ternmq://127.0.0.1:1,{host}"
    said = cli("context", "add", "several", "--url", f"ternmq://127.0.0.1:1, {host}", "--use").err
    assert f"stored {url} as several" in said
    assert url in cli("broker", "status").out
    cli("topic", "create", "orders", "--url", url)
    said = cli("broker", "status", "--url", f"{url},", code=2).err
    assert "host 3 of 3 is empty" in said
    said = cli("broker", "status", "--url", "ternmq://127.0.0.1:1,127.0.0.1:2", code=3).err
    assert "ternmq://127.0.0.1:1: connection refused; ternmq://127.0.0.1:2: connection" in said


def test_names_that_are_not_there(cli: CommandLine) -> None:
    cli("context", "add", "production", "--url", cli.url)
    assert "did you mean production?" in cli("context", "use", "prodction", code=4).err
    for verb in ("use", "remove"):
        said = cli("context", verb, "zzz", code=4).err
        assert "no context 'zzz' (`ternmq context list` shows them)" in said
    said = cli("topic", "list", "--context", "production2", code=4).err
    assert "did you mean production?" in said
    assert "--replace" in cli("context", "add", "production", "--url", cli.url, code=1).err
    cli("context", "add", "production", "--url", cli.url, "--replace")
    cli("context", "add", "x", "--url", "http://localhost", code=2)


@pytest.mark.parametrize(("token", "given"), [("", ""), (" ", ""), ("-", ""), ("-", "\n")])
def test_an_empty_token_is_not_stored(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, token: str, given: str
) -> None:
    """A secret that a build does not have is an empty variable, or an empty standard input."""
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    add = ("context", "add", "x", "--url", cli.url, "--token", token)
    assert "the token is empty" in cli(*add, "--app", "a", code=1).err
    assert "add --app NAME" in cli(*add, code=1).err
    assert cli("context", "list", "--json").json == []


def test_a_damaged_file(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TERNMQ_URL")
    file = contexts.path()
    file.parent.mkdir(parents=True)
    for damage in (b"{", b"[]", b'{"contexts": {"a": 7}}', b"\xff\xfe"):
        file.write_bytes(damage)
        assert str(file) in cli("topic", "list", code=2).err
    file.unlink()
    file.mkdir()
    assert "cannot be read" in cli("topic", "list", code=1).err


def test_an_app_of_the_environment_that_a_context_overrules_is_said(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TERNMQ_URL")
    cli("context", "add", "here", "--url", cli.url)
    cli("context", "use", "here")
    assert cli("broker", "status").err == ""
    monkeypatch.setenv("TERNMQ_APP", "web")
    said = cli("broker", "status").err
    assert said == (
        "TERNMQ_APP is not read, because context here names the broker; connecting without an app\n"
    )
    monkeypatch.setenv("TERNMQ_TOKEN", "secret")
    said = cli("broker", "status").err
    assert said.startswith("TERNMQ_APP and TERNMQ_TOKEN are not read, because context here")
    monkeypatch.delenv("TERNMQ_APP")
    assert cli("broker", "status").err.startswith("TERNMQ_TOKEN is not read, because context here")
    assert "secret" not in said


def test_an_address_and_a_context_cannot_be_given_together(cli: CommandLine) -> None:
    cli("context", "add", "there", "--url", cli.url)
    for words in (("--context", "there", "broker", "status"), ("broker", "status", "--context",
                                                               "there")):  # fmt: skip
        said = cli(*words, "--url", cli.url, code=2).err
        assert "--url and --context both name a broker" in said


TABLE = [
    # flags, environment -> url, app, token
    ({"url": "ternmq://flag"}, {}, ("ternmq://flag", None, None)),
    ({"url": "ternmq://flag"}, {"TERNMQ_CONTEXT": "kept"}, ("ternmq://flag", None, None)),
    ({"context": "kept"}, {"TERNMQ_URL": "ternmq://env"}, ("ternmq://kept", "a", "t")),
    ({}, {"TERNMQ_URL": "ternmq://env"}, (None, None, None)),
    ({}, {"TERNMQ_URL": "ternmq://env", "TERNMQ_CONTEXT": "kept"}, ("ternmq://kept", "a", "t")),
    ({}, {"TERNMQ_CONTEXT": "kept"}, ("ternmq://kept", "a", "t")),
    ({}, {}, ("ternmq://used", "", "")),
    ({"app": "b", "token": "u"}, {}, ("ternmq://used", "b", "u")),
    ({"app": "b", "context": "kept"}, {}, ("ternmq://kept", "b", None)),
]


@pytest.mark.parametrize(("flags", "environ", "expected"), TABLE)
def test_where_app_and_token_come_from(
    flags: dict[str, str],
    environ: dict[str, str],
    expected: tuple[str | None, ...],
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contexts.write(
        Contexts(
            current="used",
            contexts={
                "used": Context("ternmq://used"),
                "kept": Context("ternmq://kept", "a", "t"),
            },
        )
    )
    monkeypatch.delenv("TERNMQ_URL")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    given = dict.fromkeys(("url", "app", "token", "context")) | flags
    found = connection.resolve(**given)
    assert (found.url, found.app, found.token) == expected


def test_a_context_that_is_not_there(environment: dict[str, str]) -> None:
    with pytest.raises(Failed, match="no context 'nowhere'"):
        connection.resolve(None, None, None, "nowhere")


def test_paths_of_a_context_hold_in_every_folder(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    told = ("--url", "ternmqs://localhost:1?ca=my ca.pem", "--tables", "tables")
    cli("context", "add", "here", *told)
    kept = contexts.read().contexts["here"]
    assert kept.tables == str(tmp_path / "tables")
    assert parse(kept.url).ca == str(tmp_path / "my ca.pem")
    cli("context", "add", "store", "--url", cli.url, "--tables", "s3://bucket/tables")
    assert contexts.read().contexts["store"].tables == "s3://bucket/tables"
