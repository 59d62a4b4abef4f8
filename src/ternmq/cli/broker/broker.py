"""``ternmq broker``: the status of the broker; the brokers of a cluster."""

from __future__ import annotations

from collections.abc import Mapping

import click

from ternmq.cli.broker.broker_list import list_
from ternmq.cli.broker.clock import gap_of
from ternmq.cli.commands import Group
from ternmq.cli.reach.connection import administers
from ternmq.cli.terminal import output
from ternmq.cli.terminal.output import Cell
from ternmq.client.admin.admin_client import AdminClient
from ternmq.client.forms import values
from ternmq.model.words import counted
from ternmq.wire.control import BrokerGroupInfo, FollowerInfo, OldestFile, ScrubInfo, Status


@click.group(cls=Group)
def broker() -> None:
    """Show the status of a broker, or list the brokers of a cluster."""


broker.add_command(list_)


@broker.command()
@click.option("--metrics", is_flag=True, help="Print all metrics, by their names in /metrics.")
@output.json_option
@administers
async def status(client: AdminClient, metrics: bool, as_json: bool) -> None:
    """Show role, version, uptime, journal, connections, and the numbers of messages.

    `journal` shows the size of all journal files, and the space that sends can still use. `oldest
    file` shows the reason why the oldest journal file is still on the disk, and how long this has
    been the reason. The broker removes the files in order, so the newer files wait, too. `copies`
    shows the copies of the journal in the broker group, and how far they are behind. `open
    messages` counts the messages that were delivered to a group and are not done, in all groups
    together.
    """
    found = await client.admin.status()
    if as_json:
        output.document(
            {
                "broker": found.broker,
                "version": found.version,
                "role": found.role,
                "epoch": found.epoch,
                "now": values.of_us(found.now_us),
                "uptime_s": found.uptime_us / 1e6,
                "clock_gap_s": found.clock_gap.total_seconds(),
                "alarms": found.alarms,
                "broker_group": group_document(found.broker_group),
                "disk": {
                    "free_bytes": found.disk_free_bytes,
                    "total_bytes": found.disk_total_bytes,
                    "used": found.disk_used,
                },
                "journal": {
                    "first": found.journal_first,
                    "durable": found.journal_durable,
                    "end": found.journal_end,
                },
                "rates": {
                    "sent_a_second": found.sent_a_second,
                    "delivered_a_second": found.delivered_a_second,
                },
                "oldest_file": _document(found.oldest_file),
                "scrub": scrub_document(found.scrub),
                "metrics": found.metrics,
            }
        )
    elif metrics:
        for name, value in sorted(found.metrics.items()):
            output.line(f"{name} {value:.17g}")
    else:
        output.details(_summary(client.options.url, found))


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
        f"{read('leased_rows'):,.0f} leased, {read('ready_rows'):,.0f} ready, "
        f"{read('waiting_rows'):,.0f} retrying, "
        f"{number('dead_rows', 'dead letter')}"
    )
    return [
        ("broker", f"{found.broker} at {address}"),
        *_group(found),
        ("version", found.version),
        ("up", f"{output.span(found.uptime_us / 1e6)}, epoch {found.epoch}"),
        ("clock", gap_of(found)),
        ("alarms", _alarms(found)),
        ("connections", f"{read('connections'):.0f}, {number('sessions', 'session')}"),
        ("topics", f"{read('topics'):.0f}, {number('apps', 'app')}"),
        ("stored", f"{counted(int(stored), 'message')} since the start"),
        ("rates", _rates(found)),
        ("journal", f"{output.size(kept)}, {room}"),
        ("positions", f"{found.journal_first:,} to {found.journal_end:,}"),
        ("disk", _disk(found)),
        ("scrub", _scrub(found)),
        ("oldest file", oldest_file(found)),
        ("last sync", output.span(read("last_sync_seconds"))),
        ("open messages", open_),
        ("scheduled", f"{number('scheduled_rows', 'message')} not due yet"),
        ("transactions", _transactions(read)),
        ("memory", output.size(read("resident_bytes"))),
        ("cpu", output.span(read("cpu_seconds"))),
    ]


def _scrub(found: Status) -> str:
    """Return what is known of damaged bytes."""
    scrub = found.scrub
    parts = ["off"] if not scrub.on else []
    if scrub.completed_us:
        ago = max(0, found.now_us + round(found.clock_gap.total_seconds() * 1e6))
        since = output.span(max(0.0, (ago - scrub.completed_us) / 1e6))
        parts.append(f"the last round ended {since} ago")
    elif scrub.on:
        parts.append("no round has ended yet")
    if scrub.damaged:
        parts.append(f"{counted(scrub.damaged, 'range')} damaged")
    if scrub.mended:
        parts.append(f"{counted(scrub.mended, 'range')} mended since the start")
    return "; ".join(parts)


def _group(found: Status) -> list[tuple[str, Cell]]:
    """Return the lines about the broker group; none if the broker belongs to none."""
    group = found.broker_group
    if not group.name:
        return []
    lines: list[tuple[str, Cell]] = [("role", f"{found.role} of broker group {group.name}")]
    copies = "1 copy" if group.copies == 1 else f"{group.copies} copies"
    strict = "" if group.takes_strict else "; strict topics take no messages"
    why = f" ({group.read_only})" if group.read_only else ""
    closed = "" if group.writes_open else f"; no messages are taken{why}"
    lines.append(("copies", f"{copies}{strict}{closed}"))
    lines += [("", f"{one.broker}: {follower(one)}") for one in group.followers]
    return lines


def follower(one: FollowerInfo) -> str:
    """Return a line about a follower."""
    counts = "counts" if one.member else "does not count"
    if not one.connected:
        return f"not connected, {counts}"
    backup = ", a backup" if one.kind == "backup" else ""
    heard = output.span(one.heard_us / 1e6)
    return f"{counts}, {one.behind_bytes:,} bytes behind, heard {heard} ago{backup}"


def _disk(found: Status) -> str:
    free, total = output.size(found.disk_free_bytes), output.size(found.disk_total_bytes)
    return f"{free} of {total} free, {found.disk_used:.0%} used"


def _rates(found: Status) -> str:
    return (
        f"{output.number(found.sent_a_second)} messages/s stored, "
        f"{output.number(found.delivered_a_second)}/s delivered"
    )


def _transactions(read: Numbers) -> str:
    """Return a line about undecided transactions, those that writers name included."""
    undecided = read("transactions") + read("checked_transactions")
    parked = read("parked_transactions")
    waits = f", {parked:,.0f} of them parked: see `ternmq transaction list`" if parked else ""
    return f"{undecided:,.0f} undecided{waits}"


def _alarms(found: Status) -> str:
    return f"{found.alarms:,} open: see `ternmq alarm list`" if found.alarms else "none"


def oldest_file(found: Status) -> str:
    """Return a line about what keeps the oldest file of the journal."""
    file = found.oldest_file
    topic = f"topic {file.topic}" if file.topic else "a topic"
    group = f"group {file.group}" if file.group else "a group"
    said = {
        "active": "the only file of the journal: new messages are written to it",
        "retention": f"kept, because the retention of {topic} is not over",
        "group": f"kept, because {group} has not finished its messages of {topic}",
        "hold": f"kept by hold {file.name}" if file.name else "kept by a hold",
        "transaction": "kept by an undecided transaction"
        + (f" of writer {file.name}" if file.name else ""),
        "follower": f"kept, because it is still to be sent to follower {file.name}",
        "schedule": "kept, because scheduled messages are in it; they are copied after a day",
        "check-back": "kept, because undecided transactions are in it; they are copied after a day",
        "state": "kept, because the broker must write its state to a newer file first",
        "nothing": "kept by nothing: it is about to be removed",
    }.get(file.kept_by, file.kept_by)
    if file.lacks_room:
        said += ", but the reserve has no room for it: free disk space"
    if file.since_us and file.kept_by not in {"active", "nothing"}:
        said += f" (for the last {output.span((found.now_us - file.since_us) / 1e6)})"
    return said


def scrub_document(scrub: ScrubInfo) -> dict[str, object]:
    """Return what is known of damaged bytes in the form of the JSON output."""
    return {
        "on": scrub.on,
        "completed": values.of_us(scrub.completed_us) if scrub.completed_us else None,
        "damaged": scrub.damaged,
        "found": scrub.found,
        "mended": scrub.mended,
    }


def _document(file: OldestFile) -> dict[str, object]:
    """Return the oldest file in the form of the JSON output."""
    return {
        "kept_by": file.kept_by,
        "since": values.of_us(file.since_us) if file.since_us else None,
        "topic": file.topic,
        "group": file.group,
        "name": file.name,
        "lacks_room": file.lacks_room,
        "sends_refused": file.sends_refused,
    }


def group_document(group: BrokerGroupInfo) -> dict[str, object] | None:
    """Return a broker group in the form of the JSON output; None if the broker is in none."""
    if not group.name:
        return None
    return {
        "name": group.name,
        "copies": group.copies,
        "takes_strict": group.takes_strict,
        "writes_open": group.writes_open,
        "read_only": group.read_only,
        "since": values.of_us(group.since_us) if group.since_us else None,
        "why": group.why,
        "followers": [
            {
                "broker": one.broker,
                "kind": one.kind,
                "member": one.member,
                "connected": one.connected,
                "behind_bytes": one.behind_bytes if one.connected else None,
                "heard_s": one.heard_us / 1e6 if one.connected else None,
            }
            for one in group.followers
        ],
    }


class Numbers:
    """Reads metrics of a broker by their short names; 0 for a missing one."""

    def __init__(self, metrics: Mapping[str, float]) -> None:
        self._metrics = metrics

    def __call__(self, name: str) -> float:
        """Return a number."""
        return self._metrics.get(f"ternmq_{name}", 0.0)
