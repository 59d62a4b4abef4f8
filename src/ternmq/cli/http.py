"""``ternmq http``: runs the HTTP server in front of a broker."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.reach.connection import connection_options, timeout_of, where
from ternmq.cli.reach.parameters import read_place
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.client.connection.connecting import options_of
from ternmq.model.errors import TernMQError
from ternmq.model.units import Address

if TYPE_CHECKING:  # a library is imported when the server starts
    from ternmq.http.api.app import Settings

LISTEN: Final = Address("127.0.0.1", 7119)
_AWAY: Final = (
    "this server has no TLS: others could read tokens and messages on their way. Listen at "
    "127.0.0.1 behind a proxy that has TLS; or add --without-tls if the network is trusted"
)


@click.command(cls=Command)
@click.option(
    "--listen",
    type=read_place("127.0.0.1"),
    default=str(LISTEN),
    show_default=True,
    metavar="[HOST:]PORT",
    help="Address at which it takes requests.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name, beside those of this machine's loopback, under which requests may come; several "
    "times. Needed behind a proxy that passes the name on.",
)
@click.option(
    "--without-tls",
    is_flag=True,
    help="Listen where other machines can reach it, although it has no TLS.",
)
@connection_options
def http(
    listen: Address,
    hosts: tuple[str, ...],
    without_tls: bool,
    **_connection: object,
) -> None:
    """Run an HTTP server in front of a broker, until SIGTERM.

    It serves the REST API under /v1, for programs in any language. It has no right of its own: each
    request names an app and its token, as `curl -u APP:TOKEN`, and is carried to the broker with
    them. Any number of these servers can run; none stores anything.
    """
    context = click.get_current_context()
    place = where(context)
    if place.app or place.token:
        raise click.UsageError(
            "this server connects with the app and token of each request: leave --app, --token and "
            "contexts with an app out", context,
        )  # fmt: skip
    if not listen.is_loopback and not without_tls:
        raise Failed(_AWAY, ExitCode.USAGE)
    try:  # a wrong URL is found before it listens
        options = options_of(place.url, "", "", timeout_of(context), 600.0)
    except TernMQError as error:
        raise Failed(str(error), ExitCode.USAGE) from error
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    from ternmq.http.api.app import Settings  # aiohttp, which only this command needs

    broker = ",".join(str(replace(one, app="", token="")) for one in options.addresses)
    settings = Settings(place.url, listen, hosts, options.timeout)
    try:
        asyncio.run(_serve(settings, broker))
    except OSError as error:
        number = error.errno or 0  # an error for several addresses has none
        reason = os.strerror(number) if number > 0 else str(error)
        raise Failed(f"cannot listen at {listen}: {reason.lower()}") from error


async def _serve(settings: Settings, broker: str) -> None:
    from ternmq.http.front import run

    def listening(host: str, port: int) -> None:
        click.echo(f"serves http://{Address(host, port)}/v1 for the broker at {broker}", err=True)

    await run(settings, listening)
