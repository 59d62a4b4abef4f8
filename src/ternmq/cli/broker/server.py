"""``ternmq serve`` and ``ternmq dev``: run a broker in this process."""

from __future__ import annotations

import os
import sys
from typing import Final

import click
import msgspec

from ternmq.cli.commands import Command
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.client.connection.connecting import APP, TOKEN, URL
from ternmq.server.app import check_files, why_not_here
from ternmq.server.app import serve as run
from ternmq.server.telemetry.logs import set_up
from ternmq.settings import Address, Mode, Settings, SettingsError, load

_TRY: Final = """\
This broker deletes everything when it ends (Ctrl-C); `--data DIR` keeps it.
Try, in another terminal:

{where}    ternmq send greetings '{{"text": "hello"}}'
    ternmq consume greetings --group readers
    ternmq top

or in Python{there}:

    import ternmq.sync
    with ternmq.sync.connect() as client:
        client.send("greetings", {{"text": "hello"}})
        print(client.pull("greetings", group="others").bodies)
"""
_KEEPS: Final = "A broker for trying things out. It keeps its data in {data}."
_ANY: Final = ("0.0.0.0", "::")  # noqa: S104
_OPEN: Final = """\
Other machines can reach this broker at {listen}, and there is no TLS: tokens and messages cross the
network unencrypted. Clients connect as the app `admin` with the token in TERNMQ_ADMIN_TOKEN.
"""


def _run(
    mode: Mode,
    config: str | None,
    flags: dict[str, object],
    *,
    new_admin_token: bool = False,
    forgets: bool = False,
    welcome: str | None = None,
) -> None:
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = load(config, environ=os.environ, flags=given, mode=mode)
        check_files(settings)  # before `dev` prints its welcome
    except SettingsError as error:
        raise Failed(str(error), ExitCode.USAGE) from error
    if new_admin_token and settings.admin_token is not None:
        raise Failed(
            "the settings contain an admin_token: change it there, or remove it "
            "(TERNMQ_ADMIN_TOKEN=off) to let the broker create a new one",
            ExitCode.USAGE,
        )
    why = why_not_here(settings)
    if why is not None:
        raise Failed(why)
    if welcome is not None:
        click.echo(_greeting(welcome, settings), err=True)
    if mode is Mode.DEV and not settings.listen.is_loopback:
        click.echo(_OPEN.format(listen=settings.listen), err=True)
    set_up(settings)
    settings = msgspec.structs.replace(settings, forgets=forgets)
    if settings.cluster is not None:
        from ternmq.server.node.node import serve as run_in_group  # a lone broker needs none of it

        try:
            sys.exit(run_in_group(settings, new_admin_token=new_admin_token))
        except SettingsError as error:
            raise Failed(str(error), ExitCode.USAGE) from error
    sys.exit(run(settings, new_admin_token=new_admin_token))


def _greeting(welcome: str, settings: Settings) -> str:
    """Return the welcome text with the data folder and, unless it is the default, the address."""
    listen = settings.listen
    if str(listen) == str(Settings().listen):
        return welcome.format(where="", there="", data=settings.data)
    host = "127.0.0.1" if listen.host in _ANY else listen.host
    scheme = "ternmqs" if settings.tls_cert else "ternmq"
    if listen.port:
        lines = f"    export {URL}={scheme}://{Address(host, listen.port)}\n"
    else:
        lines = f"    export {URL}={scheme}://HOST:PORT    # as `listening on` says below\n"
    if settings.auth:
        lines += f'    export {APP}=admin {TOKEN}="$TERNMQ_ADMIN_TOKEN"\n'
    return welcome.format(where=lines, there=", in that terminal", data=settings.data)


@click.command(cls=Command)
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Data folder; created if it does not exist.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address for clients; port 0: a free port. Default: 127.0.0.1:7117.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve /livez, /readyz and /metrics at this loopback address; `off`: nowhere. Default: "
    "127.0.0.1:7118.",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Settings file. Default: $TERNMQ_CONFIG, or ternmq.toml in the current folder.",
)
@click.option(
    "--new-admin-token",
    is_flag=True,
    help="Give the app `admin` all rights and a new token, written to admin.token in the data "
    "folder. The old token becomes invalid.",
)
def serve(
    data: str | None,
    listen: str | None,
    http: str | None,
    config: str | None,
    new_admin_token: bool,
) -> None:
    """Run a broker until SIGTERM, Ctrl-C or SIGHUP.

    It prints `listening on HOST:PORT` when it is ready. SIGHUP means that its terminal was closed;
    under `nohup`, the broker ignores SIGHUP.
    """
    _run(
        Mode.SERVE,
        config,
        {"data": data, "listen": listen, "http": http},
        new_admin_token=new_admin_token,
    )


@click.command(cls=Command)
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Data folder, kept at exit; TERNMQ_DATA is ignored. Default: a temporary folder, deleted "
    "at exit.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address for clients; port 0: a free port. Addresses other than loopback require "
    "TERNMQ_ADMIN_TOKEN. Default: 127.0.0.1:7117.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve /livez, /readyz and /metrics at this loopback address; `off`: nowhere. Default: "
    "127.0.0.1:7118.",
)
def dev(data: str | None, listen: str | None, http: str | None) -> None:
    """Run a broker for development: no tokens needed, topics are created at first use.

    Without --data, the data is deleted at exit, also when the terminal is closed.
    """
    if data is not None:
        flags: dict[str, object] = {"data": data, "listen": listen, "http": http}
        _run(Mode.DEV, None, flags, welcome=_KEEPS)
    import tempfile

    with tempfile.TemporaryDirectory(prefix="ternmq-dev-") as folder:
        flags = {"data": folder, "listen": listen, "http": http}
        _run(Mode.DEV, None, flags, forgets=True, welcome=_TRY)
