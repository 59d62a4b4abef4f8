"""docs/reference/cli.md is what the commands say. ``make docs`` writes it anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ternmq.cli.commands import TABLE
from ternmq.cli.main import ternmq
from ternmq.cli.reference import reference
from ternmq.cli.terminal.exits import MEANING, ExitCode

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
ROOT = ternmq.make_context("ternmq", [], resilient_parsing=True)


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for one in command.list_commands(ROOT):
            below = command.get_command(ROOT, one)
            assert below is not None
            yield from commands(below, f"{name} {one}")


ALL = dict(commands(ternmq, "ternmq"))


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run `make docs`"


@pytest.mark.parametrize("name", ALL)
def test_every_command_and_option_has_a_help_text(name: str) -> None:
    command = ALL[name]
    assert command.help, name
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts}"
            assert parameter.help.endswith((".", "%")), f"{name} {parameter.opts}"


def test_the_page_names_every_command_once() -> None:
    lines = reference().splitlines()
    for name in ALL:
        if name != "ternmq":
            assert lines.count(f"### {name}") == 1


@pytest.mark.parametrize("name", TABLE)
def test_what_is_said_without_importing_a_command_is_what_it_says(name: str) -> None:
    first = (ALL[f"ternmq {name}"].help or "").split("\n\n")[0].replace("\n", " ")
    assert first.startswith(TABLE[name].about.removesuffix(".")), first


def test_every_exit_status_has_a_meaning() -> None:
    assert set(MEANING) == set(ExitCode)


def test_the_help_of_the_program_names_each_exit_status_of_an_error() -> None:
    named = [int(part.split()[0]) for part in (ternmq.epilog or "").partition(": ")[2].split(", ")]
    assert named == [int(code) for code in MEANING if code < 128]


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
