"""``ternmq broker``: the status of the broker."""

from __future__ import annotations

from collections.abc import Mapping

import click

from ternmq.cli.commands import Group
from ternmq.cli.reach.connection import administers
from ternmq.cli.terminal import output
from ternmq.cli.terminal.output import Cell
from ternmq.client.admin.admin_client import AdminClient
from ternmq.model.words import counted
from ternmq.wire.control import OldestFile, Status


@click.group(cls=Group)
def broker() -> None:
    """Show the status of the broker."""


@broker.command()
@click.option("--metrics", is_flag=True, help="Print all metrics, by their names in /metrics.")
@output.json_option
@administers
async def status(client: AdminClient, metrics: bool, as_json: bool) -> None:
    """Show version, uptime, journal, connections, and the numbers of stored and open messages."""
    found = await client.admin.status()
    if as_json:
        output.document(
            {
                "broker": found.broker,
                "version": found.version,
                "epoch": found.epoch,
                "now": output.of_us(found.now_us),
                "uptime_s": found.uptime_us / 1e6,
                "oldest_file": _document(found.oldest_file),
                "metrics": found.metrics,
            }
        )
    elif metrics:
        for name, value in sorted(found.metrics.items()):
            output.line(f"{name} {value:.17g}")
    else:
        output.details(_summary(str(client.options.address), found))


def _summary(address: str, found: Status) -> list[tuple[str, Cell]]:
    read = Numbers(found.metrics)

    def number(name: str, what: str) -> str:
        return counted(int(read(name)), what)

    stored = read("messages_sent_total") + read("messages_committed_total")
    kept = read("journal_durable") - read("journal_first")
    room = f"room for {output.size(read('journal_room'))}"
    if found.oldest_file.sends_refused:
        room = "and sends are refused"  # even if the disk has room
    open_ = (
        f"{read('leased_rows'):,.0f} leased, {read('ready_rows'):,.0f} ready again, "
        f"{read('waiting_rows'):,.0f} retrying, "
        f"{number('dead_rows', 'dead letter')}"
    )
    return [
        ("broker", f"{found.broker} at {address}"),
        ("version", found.version),
        ("up", f"{output.span(found.uptime_us / 1e6)}, epoch {found.epoch}"),
        ("connections", f"{read('connections'):.0f}, {number('sessions', 'session')}"),
        ("topics", f"{read('topics'):.0f}, {number('apps', 'app')}"),
        ("stored", f"{counted(int(stored), 'message')} since the start"),
        ("journal", f"{output.size(kept)}, {room}"),
        ("oldest file", oldest_file(found)),
        ("last sync", output.span(read("last_sync_seconds"))),
        ("open messages", open_),
        ("memory", output.size(read("resident_bytes"))),
        ("cpu", output.span(read("cpu_seconds"))),
    ]


def oldest_file(found: Status) -> str:
    """Return a line about what keeps the oldest file of the journal."""
    file = found.oldest_file
    topic = f"topic {file.topic}" if file.topic else "a topic"
    group = f"group {file.group}" if file.group else "a group"
    said = {
        "active": "the only one: what is sent is written to it",
        "retention": f"kept: the retention of {topic} is not over",
        "group": f"kept: {group} of {topic} has not finished it",
        "hold": f"kept by hold {file.name}".rstrip(),
        "transaction": f"kept by an undecided transaction of writer {file.name}".rstrip(),
        "state": "kept until the broker's state is written after it",
        "nothing": "about to be removed",
    }.get(file.kept_by, file.kept_by)
    if file.lacks_room:
        said += ", for which the reserve has no room: free disk space"
    if file.since_us:
        said += f", for {output.span((found.now_us - file.since_us) / 1e6)}"
    return said


def _document(file: OldestFile) -> dict[str, object]:
    """Return the oldest file in the form of the JSON output."""
    return {
        "kept_by": file.kept_by,
        "since": output.of_us(file.since_us) if file.since_us else None,
        "topic": file.topic,
        "group": file.group,
        "name": file.name,
        "lacks_room": file.lacks_room,
        "sends_refused": file.sends_refused,
    }


class Numbers:
    """Reads metrics of a broker by their short names; 0 for a missing one."""

    def __init__(self, metrics: Mapping[str, float]) -> None:
        self._metrics = metrics

    def __call__(self, name: str) -> float:
        """Return a number."""
        return self._metrics.get(f"ternmq_{name}", 0.0)
