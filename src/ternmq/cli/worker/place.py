"""The broker of a worker: the code, the command line and a context must agree."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from ternmq.cli.reach.connection import CONTEXT, Where, given_options, resolve
from ternmq.client.client import Client
from ternmq.client.connection.connecting import APP, TOKEN, URL, options_of
from ternmq.sync.client import Client as BlockingClient


def told(context: click.Context) -> Callable[[Client | BlockingClient], None]:
    """Direct clients made from here on to the broker of the options; return a check of a client.

    The context in use is ignored: what someone uses to look at brokers must not decide what is
    consumed.

    Raises:
        click.UsageError: By the check: the code names another broker, app or token, and which of
            the two is right cannot be known: handlers that ran at the wrong broker cannot be
            undone. Or at once: an option does not apply to a worker.
    """
    given = given_options(context)
    if "timeout" in given:
        raise click.UsageError(
            "--timeout does not apply to a worker: set it in the code, ternmq.connect(..., "
            "timeout=...)"
        )
    named = given.get("context") or (None if "url" in given else os.environ.get(CONTEXT)) or None
    place = Where(url=given.get("url"), app=given.get("app"), token=given.get("token"))
    if named is not None:
        place = resolve(place.url, place.app, place.token, named)
    wanted = {URL: place.url, APP: place.app, TOKEN: place.token}
    os.environ.update({name: value for name, value in wanted.items() if value is not None})

    def check(client: Client | BlockingClient) -> None:
        if all(value is None for value in wanted.values()):
            return
        meant = options_of(place.url, place.app, place.token, 1.0, 1.0)
        made = client.options
        address, other_address = made.url, meant.url
        here = f"the context {named}" if named is not None else "the command line"
        for name, stated, same, one, other in (
            ("address", None, address == other_address, address, other_address),
            ("app", place.app, made.app == meant.app, repr(made.app), repr(meant.app)),
            ("token", place.token, made.token == meant.token, "one value", "another"),
        ):
            if same or (place.url is None and stated is None):
                continue  # not given here: the code decides, unless the broker is another one
            raise click.UsageError(
                f"the code sets the {name} to {one}, but {here} sets it to {other}: leave it out "
                "of ternmq.connect(...), or do not set it here"
            )

    return check
