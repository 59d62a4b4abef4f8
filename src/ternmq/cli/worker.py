"""``ternmq worker module:client``: run the handlers of an application."""

from __future__ import annotations

import asyncio
import logging
import pkgutil
import sys

import click

from ternmq.cli.commands import Command
from ternmq.client.client import Client


def find(target: str) -> Client:
    """Return the client that ``package.module:name`` names, imported from the folder we are in.

    Raises:
        click.UsageError: There is no such module or name, or it is no client.
    """
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise click.UsageError(f"{target!r} is not MODULE:CLIENT, such as shop.consumers:client")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = pkgutil.resolve_name(target)
    except ModuleNotFoundError as error:
        raise click.UsageError(f"no module {error.name!r} here; are you in its folder?") from error
    except AttributeError as error:
        raise click.UsageError(f"module {module!r} has no {name!r}") from error
    except ValueError as error:
        raise click.UsageError(f"{target!r} is not MODULE:CLIENT") from error
    if not isinstance(found, Client):
        raise click.UsageError(
            f"{target!r} is a {type(found).__name__}; make it with ternmq.connect(...)"
        )
    return found


@click.command(cls=Command)
@click.argument("target", metavar="MODULE:CLIENT")
@click.option("-v", "--verbose", count=True, help="Log more.")
def worker(target: str, verbose: int) -> None:
    """Run the handlers that are declared on a client, until SIGTERM.

    On SIGTERM it stops pulling, finishes what runs, gives back the rest, and ends.
    """
    logging.basicConfig(
        level=(logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)],
        format="%(asctime)s %(levelname)-8s %(name)s: %(message)s",
    )
    client = find(target)
    asyncio.run(client.run())
