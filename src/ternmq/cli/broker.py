"""``ternmq broker``: how the broker is."""

from __future__ import annotations

from collections.abc import Mapping

import click

from ternmq.cli import output
from ternmq.cli.commands import Group
from ternmq.cli.connection import asks_broker
from ternmq.cli.output import Cell
from ternmq.client.client import Client
from ternmq.wire.control import Status


@click.group(cls=Group)
def broker() -> None:
    """How the broker is."""


@broker.command()
@click.option("--metrics", is_flag=True, help="Every number, by the name that /metrics has.")
@output.json_option
@asks_broker
async def status(client: Client, metrics: bool, as_json: bool) -> None:
    """Show version, uptime, journal, connections, and what is stored and waits."""
    found = await client.admin.status()
    if as_json:
        output.document(
            {
                "broker": found.broker,
                "version": found.version,
                "epoch": found.epoch,
                "now": output.of_us(found.now_us),
                "uptime_s": found.uptime_us / 1e6,
                "metrics": found.metrics,
            }
        )
    elif metrics:
        for name, value in sorted(found.metrics.items()):
            click.echo(f"{name} {value:.17g}")
    else:
        output.details(_summary(str(client.options.address), found))


def _summary(address: str, found: Status) -> list[tuple[str, Cell]]:
    read = Numbers(found.metrics)
    kept = read("journal_durable") - read("journal_first")
    blocked = (
        "; sends are refused: retention keeps unread messages" if read("sends_blocked") else ""
    )
    again = read("ready_rows") + read("waiting_rows")
    open_ = (
        f"{read('leased_rows'):,.0f} leased, {again:,.0f} come again, "
        f"{read('dead_rows'):,.0f} dead letters"
    )
    return [
        ("broker", f"{found.broker} at {address}"),
        ("version", found.version),
        ("up", f"{output.span(found.uptime_us / 1e6)}, epoch {found.epoch}"),
        ("connections", f"{read('connections'):.0f}, {read('sessions'):.0f} sessions"),
        ("topics", f"{read('topics'):.0f}, {read('apps'):.0f} apps"),
        ("stored", f"{read('messages_sent_total'):,.0f} messages since the start"),
        ("journal", f"{output.size(kept)}, room for {output.size(read('journal_room'))}{blocked}"),
        ("last sync", output.span(read("last_sync_seconds"))),
        ("open messages", open_),
        ("memory", output.size(read("resident_bytes"))),
        ("cpu", output.span(read("cpu_seconds"))),
    ]


class Numbers:
    """Reads numbers of a broker by their short names; 0 for one that it does not have."""

    def __init__(self, metrics: Mapping[str, float]) -> None:
        self._metrics = metrics

    def __call__(self, name: str) -> float:
        """Return a number."""
        return self._metrics.get(f"ternmq_{name}", 0.0)
