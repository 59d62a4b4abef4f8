"""``ternmq broker list``: the brokers of a cluster that run."""

from __future__ import annotations

import click

from ternmq.cli.broker.cluster_view import View, broker_document, look, role
from ternmq.cli.commands import Command
from ternmq.cli.reach.coordinators import Cluster, asks_cluster
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed


@click.command("list", cls=Command)
@output.json_option
@asks_cluster
async def list_(cluster: Cluster, as_json: bool) -> None:
    """List the running brokers of all broker groups, as the coordinator knows them.

    A broker that was killed disappears after some seconds.
    """
    found = await cluster.brokers()
    views: dict[str, View | None] = {}
    for group in {one.group for one in found}:
        views[group] = await _view(Cluster(cluster.coordinator, group))
    if as_json:
        output.document([broker_document(one, views[one.group]) for one in found])
        return
    output.table(
        ("group", "broker", "role", "address", "version"),
        [
            (one.group, one.broker, role(one, views[one.group]), one.address, one.software)
            for one in found
        ],
        "no broker runs with this coordinator",
        spare=("version",),
    )


async def _view(cluster: Cluster) -> View | None:
    """Return what the coordinator says of a group; None if there is no record of it."""
    try:
        return await look(cluster)
    except Failed as error:
        if error.code != ExitCode.NOT_FOUND:
            raise
        return None
