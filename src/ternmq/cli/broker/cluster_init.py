"""``ternmq cluster init``: whether the coordinator works, and what the brokers need to use it."""

from __future__ import annotations

import re
import secrets
import time
from shlex import quote
from typing import Final
from urllib.parse import urlsplit

import click

from ternmq.cli.commands import Command
from ternmq.cli.reach.coordinators import CLUSTER, Cluster, begins_cluster, known
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cluster.coordination import checking

_TOKEN: Final = "TERNMQ_CLUSTER_TOKEN"  # noqa: S105 - the name of a variable
_TOKEN_BYTES: Final = 16
_PASSWORD: Final = re.compile(r"([?&](?:password|passwd|sslpassword)=)[^&]*", re.IGNORECASE)


@click.command(cls=Command)
@output.json_option
@begins_cluster
async def init(cluster: Cluster, as_json: bool) -> None:
    """Prepare a coordinator: check that it works, and make its tables.

    Run it once, before the first broker, as an account of the database that may create tables.
    After that, the account of the brokers needs only the rights to select, insert, update and
    delete in them. In ZooKeeper, the command makes nodes below the path of the URL: use the account
    of the brokers there. It may be repeated, also while brokers run.

    It also prints a new cluster token, if there is no such broker group yet. The token is not
    stored in the coordinator: set the same one for all brokers of the cluster.
    """
    began = time.monotonic()
    try:
        await checking.check(cluster.coordinator)
    except checking.DoesNotAnswer as error:
        raise Failed(f"the coordinator cannot be used: {error}", ExitCode.NO_BROKER) from error
    except checking.Unfit as error:
        raise Failed(f"this is no coordinator: {error}", ExitCode.UNSOUND) from error
    seconds = time.monotonic() - began
    record = known(await cluster.group.read())
    token = secrets.token_hex(_TOKEN_BYTES) if record is None else None
    if as_json:
        output.document(
            {
                "broker_group": cluster.name,
                "seconds": round(seconds, 4),
                "primary": None if record is None else record.primary,
                "cluster_token": token,
            }
        )
        return
    group = f"{cluster.name}: none yet" if record is None else f"{cluster.name}: it exists already"
    output.details(
        [
            ("coordinator", f"it works: changed, read and announced in {output.span(seconds)}"),
            ("broker group", group),
        ]
    )
    if token is None:
        return
    output.line("")
    output.line("Set these for each broker of the group, beside its TERNMQ_NAME:")
    output.line("")
    output.line(f"    export {CLUSTER}={quote(_shown(cluster.url))}")
    output.line(f"    export {_TOKEN}={token}")


def _shown(url: str) -> str:
    """Return the URL for people: a password in it is left out."""
    parts = urlsplit(url)
    account, at, place = parts.netloc.rpartition("@")
    user, colon, _ = account.partition(":")
    if colon:
        url = parts._replace(netloc=f"{user}:PASSWORD{at}{place}").geturl()
    return _PASSWORD.sub(r"\1PASSWORD", url)
