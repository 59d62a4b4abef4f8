"""``ternmq context``: names for brokers, instead of addresses and tokens on each command."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import quote

import click

from ternmq.cli.commands import Group
from ternmq.cli.reach import contexts
from ternmq.cli.reach.contexts import Context
from ternmq.cli.reach.parameters import NAME
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import Failed
from ternmq.client.connection.address import parse_all, url_of


@click.group(cls=Group)
def context() -> None:
    """Manage contexts: named brokers, with app and token.

    Contexts and their tokens are stored in a file that only you can read. A command uses the first
    of these that names a broker: --url; --context or TERNMQ_CONTEXT; TERNMQ_URL; the context in
    use.
    """


@context.command()
@click.argument("name", type=NAME)
@click.option(
    "--url",
    metavar="URL",
    required=True,
    help="Broker address: ternmq://HOST:PORT, of several brokers: ternmq://HOST:PORT,HOST:PORT.",
)
@click.option("--app", metavar="NAME", type=NAME, help="App to connect as.")
@click.option(
    "--token",
    metavar="TOKEN|-",
    help="Token of the app; -: read it from standard input. "
    "Default: with --app, the command asks for it, in a terminal.",
)
@click.option(
    "--tables", metavar="DIR", help="Folder of the broker's tables, for `message` and `pipeline`."
)
@click.option("--use", is_flag=True, help="Use this context from now on.")
@click.option("--replace", is_flag=True, help="Replace the context of this name if it exists.")
def add(
    name: str,
    url: str,
    app: str | None,
    token: str | None,
    tables: str | None,
    use: bool,
    replace: bool,
) -> None:
    """Add a context. The first one becomes the context in use.

    The context stores the address, the app and the token.
    """
    addresses = parse_all(url)
    address = addresses[0]
    kept = contexts.read()
    if name in kept.contexts and not replace:
        raise Failed(f"there is a context {name!r} already; --replace changes it")
    app = app or address.app
    if token is not None:
        if not app:
            raise Failed("a token belongs to an app: add --app NAME")
        if token == "-":  # noqa: S105 - means standard input
            token = sys.stdin.readline()
        token = token.strip()
        if not token:
            raise Failed("the token is empty")
    token = token or address.token
    if app and not token and sys.stdin.isatty():
        token = click.prompt(f"token of {app}", hide_input=True, err=True)
    # A context serves every folder, so its paths are whole.
    bare = url_of(addresses) + (
        f"?ca={quote(str(Path(address.ca).absolute()))}" if address.ca else ""
    )
    if tables and "://" not in tables:
        tables = str(Path(tables).absolute())
    kept.contexts[name] = Context(bare, app, token or "", tables or "")
    if use or not kept.current:
        kept.current = name
    contexts.write(kept)
    used = "it is in use now" if kept.current == name else f"`ternmq context use {name}` selects it"
    output.note(f"stored {bare} as {name} in {contexts.path()}; {used}")


@context.command("list")
@output.json_option
def list_(as_json: bool) -> None:
    """List the contexts, without tokens."""
    kept = contexts.read()
    rows = sorted(kept.contexts.items())
    if as_json:
        output.document(
            [
                {"name": name, "url": one.url, "app": one.app, "token": bool(one.token),
                 "current": name == kept.current}
                for name, one in rows
            ]
        )  # fmt: skip
        return
    output.table(
        ("used", "name", "app", "token", "url"),
        [
            ("*" if name == kept.current else "", name, one.app, "kept" if one.token else "",
             one.url)
            for name, one in rows
        ],
        "no contexts; `ternmq context add NAME --url ternmq://HOST:PORT` stores one",
    )  # fmt: skip


@context.command()
@click.argument("name", type=NAME)
def use(name: str) -> None:
    """Select the context that commands use by default."""
    kept = contexts.read()
    _check(kept, name)
    kept.current = name
    contexts.write(kept)
    output.note(f"context {name} is in use now: {kept.contexts[name].url}")


@context.command()
@click.argument("name", type=NAME)
def remove(name: str) -> None:
    """Remove a context and its token."""
    kept = contexts.read()
    _check(kept, name)
    del kept.contexts[name]
    if kept.current == name:
        kept.current = ""
        output.note("no context is in use any more")
    contexts.write(kept)
    output.note(f"removed context {name}")


def _check(kept: contexts.Contexts, name: str) -> None:
    if name not in kept.contexts:
        raise contexts.unknown(name, kept)
