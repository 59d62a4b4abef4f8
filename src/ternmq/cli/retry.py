"""``ternmq retry``: messages that failed and wait for another attempt."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ternmq.cli import output
from ternmq.cli.commands import Group
from ternmq.cli.connection import asks_broker
from ternmq.cli.failed import chosen, listing, pieces, showing, some
from ternmq.cli.parameters import QUEUE, group_argument, topic_argument
from ternmq.cli.problems import not_found
from ternmq.client.client import Client


@click.group(cls=Group)
def retry() -> None:
    """Messages that failed and wait for another attempt."""


retry.add_command(
    listing("List what waits, and why; ordered groups hold some until you let them go.", dead=False)
)
retry.add_command(showing("Show a message that waits, with every failure.", dead=False))


@retry.command()
@topic_argument()
@group_argument()
@click.argument("offsets", metavar="[OFFSET]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that wait.")
@click.option("--queue", type=QUEUE, help="The queue; needed where a topic has several.")
@output.json_option
@asks_broker
async def now(
    client: Client,
    topic: str,
    group: str,
    offsets: Sequence[str],
    everything: bool,
    queue: int | None,
    as_json: bool,
) -> None:
    """Let messages come again at once: offsets (7), ranges (10-12), or --all."""
    found = await chosen(client, topic, group, offsets, queue, everything=everything, dead=False)
    missing: list[int] = []
    count = 0
    for number, rows in found.items():
        for piece in pieces(rows):
            lost = await client.deadletters.retry(topic, group, piece, queue=number)
            missing += lost
            count += len(piece) - len(lost)
    if as_json:
        output.document({"done": count, "missing": missing})
    else:
        output.note(f"{count:,} messages of {topic} come again to {group} now")
    if missing and not everything:
        raise not_found(f"these did not wait: {some(missing)}")
