"""``ternmq serve`` and ``ternmq dev``: run a broker in this process."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.exits import ExitCode, Failed
from ternmq.server.app import serve as run
from ternmq.server.logs import set_up
from ternmq.settings import Mode, SettingsError, load

_TRY: Final = """\
A broker that forgets everything when it ends (Ctrl-C). Try, in another terminal:

    ternmq send orders '{"number": 7}'
    ternmq consume orders --group billing
    ternmq top

or in Python:

    import ternmq.sync
    with ternmq.sync.connect() as client:
        client.send("orders", {"number": 7})
        print(client.pull("orders", group="billing").bodies)
"""
_KEEPS: Final = "A broker without tokens, for trying things; it keeps what it stores in {data}."


def _run(mode: Mode, config: str | None, flags: dict[str, object]) -> None:
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = load(config, environ=os.environ, flags=given, mode=mode)
    except SettingsError as error:
        raise Failed(str(error), ExitCode.USAGE) from error
    set_up(settings)
    sys.exit(run(settings))


@click.command(cls=Command)
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Folder of the journal; made if missing.",
)
@click.option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 picks one.")
@click.option("--http", metavar="HOST:PORT", help="Where /metrics, /livez, /readyz are.")
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="A ternmq.toml; by default $TERNMQ_CONFIG, or the one in this folder.",
)
def serve(data: str | None, listen: str | None, http: str | None, config: str | None) -> None:
    """Run a broker until SIGTERM; prints `listening on HOST:PORT` when it is ready."""
    _run(Mode.SERVE, config, {"data": data, "listen": listen, "http": http})


@click.command(cls=Command)
@click.option(
    "--data", metavar="DIR", type=click.Path(file_okay=False), help="Keep the journal here."
)
@click.option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 picks one.")
@click.option("--http", metavar="HOST:PORT", help="Where /metrics, /livez, /readyz are.")
def dev(data: str | None, listen: str | None, http: str | None) -> None:
    """Run a broker to try things with: no tokens, topics made at first use, forgets at exit."""
    if data is not None:
        click.echo(_KEEPS.format(data=data), err=True)
        _run(Mode.DEV, None, {"data": data, "listen": listen, "http": http})
    click.echo(_TRY, err=True)
    with tempfile.TemporaryDirectory(prefix="ternmq-dev-") as folder:
        _run(Mode.DEV, None, {"data": folder, "listen": listen, "http": http})
