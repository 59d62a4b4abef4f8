"""The glossary has the words that the command line shows, each once and in order."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import ternmq
import ternmq.sync
from ternmq.cli.groups.group_lag import COLUMNS
from ternmq.testing import broker
from tests.pages.made import DOCS

PAGE = DOCS / "reference" / "glossary.md"
_SINGULAR = {"members": "member"}


def words() -> list[str]:
    return re.findall(r"^\| \*\*(.+?)\*\* \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_words_stand_once_and_in_order() -> None:
    assert words() == sorted(set(words()))


def test_the_columns_of_group_lag_are_explained() -> None:
    assert {_SINGULAR.get(one, one) for one in COLUMNS} <= set(words())
    assert {"held", "hold", "window"} <= set(words())


def test_what_is_held_counts_as_retrying_as_the_page_says() -> None:
    policy = ternmq.RetryPolicy(attempts=1, exhausted=ternmq.Exhausted.HOLD)
    with broker() as one, ternmq.sync.connect(one.url) as client:
        client.admin.create_topic("orders", ordered=True)
        client.admin.create_group("orders", "g", retry=policy)
        client.send("orders", b"1", ordering_key="k")
        (delivery,) = client.pull("orders", group="g")
        delivery.retry()
        (queue,) = client.admin.group("orders", "g").queues
        assert (queue.lag, queue.ready, queue.leased, queue.waiting, queue.dead) == (0, 0, 0, 1, 0)
