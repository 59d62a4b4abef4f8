"""Batch sessions on the command line: readable for people, exact for programs."""

from __future__ import annotations

import ternmq.sync
from ternmq.client.content.items import ITEMS
from ternmq.reliable import Items, batch
from tests.cli.conftest import CommandLine, Processes


def test_a_session_is_shown_item_by_item(
    cli: CommandLine, client: ternmq.sync.Client, topic: str
) -> None:
    with batch(client, topic, id=f"of-{topic}") as holder:
        holder.add({"id": 1}, key="order 1", tag="new", headers={"region": "eu"})
        holder.add("grün\x1b[31m")
        holder.add(b"\xff\x00")
    (receipt,) = holder.receipts
    lines = [
        'key="order 1"  tag=new  region:eu  {"id":1}',
        "grün\\x1b[31m",
        "\\xff\\x00",
    ]
    told = cli("tail", topic).out
    assert told.endswith(f"  session of-{topic}.0, 3 items:  {' | '.join(lines)}\n")
    whole = cli("message", "get", topic, receipt.application_id).out
    assert "\n".join([f"session of-{topic}.0, 3 items:", *lines]) in whole
    assert ITEMS in whole


def test_the_json_of_a_session_can_be_sent_again(
    cli: CommandLine, processes: Processes, client: ternmq.sync.Client, topic: str
) -> None:
    with batch(client, topic) as holder:
        holder.add(1, key="a")
        holder.add(2)
    told = cli("tail", topic, "--json")
    processes.run("send", f"{topic}-again", "--json-in", data=told.out.encode())
    (again,) = client.read(f"{topic}-again")
    found = again.decode(Items[int])
    assert (list(found), found.keys, found.session) == (
        [1, 2],
        ["a", ""],
        holder.receipts[0].application_id,
    )


def test_what_is_no_session_is_shown_as_bytes(
    cli: CommandLine, client: ternmq.sync.Client, topic: str
) -> None:
    client.send(topic, b"\x93\xff", content_type=ITEMS)
    assert "\\x93\\xff" in cli("tail", topic).out
