from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

import ternmq.sync
from ternmq.cli import main
from tests.black_box.process import free_port
from tests.cli.conftest import CommandLine


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(cli: CommandLine, shell: str) -> None:
    script = cli("completion", shell).out
    assert f"_TERNMQ_COMPLETE={shell}_complete" in script


@pytest.fixture
def words(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], list[str]]:
    """Return what bash is offered for the last word of a line."""

    def offered(line: str) -> list[str]:
        monkeypatch.setenv("_TERNMQ_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        with pytest.raises(SystemExit):
            main.run([])
        out, err = capsys.readouterr()
        assert err == ""
        return [one.partition(",")[2] for one in out.splitlines() if one]

    return offered


def test_commands_options_and_names_are_completed(
    words: Callable[[str], list[str]], client: ternmq.sync.Client, topic: str
) -> None:
    client.admin.create_topic(f"{topic}-completed")
    client.admin.create_group(f"{topic}-completed", "billing")
    assert words("ternmq to") == ["topic", "top"]
    assert words("ternmq topic s") == ["show", "set"]
    assert "--retention" in words("ternmq topic create --re")
    assert words(f"ternmq topic show {topic}-") == [f"{topic}-completed"]
    assert words(f"ternmq group show {topic}-completed b") == ["billing"]
    assert words("ternmq del") == ["delay"]
    assert words("ternmq delay ") == ["list", "cancel"]
    assert words(f"ternmq delay cancel {topic}-") == [f"{topic}-completed"]
    assert words("ternmq send x --del") == ["--delay", "--delay-level"]


def test_nothing_is_completed_without_a_broker(
    words: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERNMQ_URL", f"ternmq://127.0.0.1:{free_port()}")
    assert words("ternmq topic show x") == []


def test_bash_takes_the_script(cli: CommandLine) -> None:
    script = cli("completion", "bash").out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=60)
