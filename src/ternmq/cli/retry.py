"""``ternmq retry``: messages that failed and wait for another attempt."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ternmq.cli import output
from ternmq.cli.commands import Group
from ternmq.cli.connection import asks_broker
from ternmq.cli.failed import chosen, deleting, listing, showing, some
from ternmq.cli.parameters import QUEUE, group_argument, topic_argument
from ternmq.cli.problems import not_found
from ternmq.client.client import Client
from ternmq.model.words import counted, verb


@click.group(cls=Group)
def retry() -> None:
    """Messages that failed and wait for another attempt."""


retry.add_command(
    listing("List what waits, and why; ordered groups hold some until you let them go.", dead=False)
)
retry.add_command(showing("Show a message that waits, with every failure.", dead=False))
retry.add_command(
    deleting(
        "Forget messages that wait or are held, so that the later ones of their ordering key come: "
        "offsets (7), ranges (10-12), places as the list shows them (1/7), or --all.",
        dead=False,
    )
)


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
    """Let messages come again at once.

    They are named by offsets (7), ranges (10-12), places as the list shows them (1/7), or --all.
    """
    found = await chosen(client, topic, group, offsets, queue, everything=everything, dead=False)
    missing: list[tuple[int, int]] = []
    count = 0
    for number, rows in found.items():
        lost = await client.deadletters.retry(topic, group, rows, queue=number)
        missing += [(number, offset) for offset in lost]
        count += len(rows) - len(lost)
    if as_json:
        output.document({"done": count, "missing": [offset for _, offset in missing]})
    elif count or not missing:
        comes = verb(count, "comes", "come")
        output.note(f"{counted(count, 'message')} of {topic} {comes} again to {group} now")
    if missing and not everything:
        raise not_found(f"these did not wait: {some(missing)}")
