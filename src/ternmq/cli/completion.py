"""``ternmq completion``: scripts with which shells complete commands, options and names."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from ternmq.cli.commands import Command

_VARIABLE: Final = "_TERNMQ_COMPLETE"


@click.command(cls=Command)
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options, and names of topics and groups.

    bash: `eval "$(ternmq completion bash)"` in ~/.bashrc; zsh: the same with zsh in ~/.zshrc;
    fish: `ternmq completion fish > ~/.config/fish/completions/ternmq.fish`.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    made = kind(root, {}, "ternmq", _VARIABLE)
    # Not source(): it runs bash to read its version, but the script may be for another machine.
    click.echo(made.source_template % made.source_vars())
