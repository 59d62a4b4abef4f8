"""``ternmq``: the command line's root, and how its commands end."""

from __future__ import annotations

import sys
from typing import Final

import click

from ternmq import __version__
from ternmq.cli.server import dev, serve
from ternmq.cli.worker import worker
from ternmq.model.errors import TernMQError

EXIT_FAILED: Final = 1
"""What was asked for could not be done."""
EXIT_USAGE: Final = 2
"""It was asked for in a way that is not understood."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ternmq")
def ternmq() -> None:
    """A message broker that you pip install."""


ternmq.add_command(serve)
ternmq.add_command(dev)
ternmq.add_command(worker)


def main() -> None:
    """Run the command line; the entry point of the script ``ternmq``."""
    try:
        ternmq()
    except TernMQError as error:
        click.echo(f"ternmq: {error}", err=True)
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
