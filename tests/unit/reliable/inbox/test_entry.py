"""Ids of an inbox."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import pytest

from ternmq.model.errors import InvalidRequest
from ternmq.reliable.inbox.entry import MAX_ID_BYTES, Entry, entry_of, id_bytes


def delivery(**changes: str) -> object:
    known = {"topic": "orders", "group": "billing", "id": "p:1", "application_id": ""}
    return SimpleNamespace(**(known | changes))


def of(one: object, by: object = None) -> Entry:
    return entry_of(one, by)  # type: ignore[arg-type]


def test_the_application_id_comes_before_the_messages_own() -> None:
    assert of(delivery()) == Entry("orders/billing", b"p:1")
    assert of(delivery(application_id="order-7")).id == b"order-7"


def test_ids_count_within_topic_and_group() -> None:
    assert len({of(delivery(topic=t, group=g)) for t in ("a", "b") for g in ("a", "b")}) == 4


@pytest.mark.parametrize(
    ("by", "id_"),
    [("ä", "ä".encode()), (7, b"7"), (uuid.UUID(int=1), str(uuid.UUID(int=1)).encode())],
)
def test_an_id_of_the_business(by: object, id_: bytes) -> None:
    assert of(delivery(application_id="x"), by).id == id_


@pytest.mark.parametrize("by", ["", 1.5, b"x", True, "\ud800", "x" * (MAX_ID_BYTES + 1)])
def test_what_is_no_id_is_refused(by: object) -> None:
    with pytest.raises(InvalidRequest):
        of(delivery(), by)


def test_the_longest_id() -> None:
    assert id_bytes("ä" * 64) == b"\xc3\xa4" * 64


def test_a_message_that_was_read_without_a_group_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="group"):
        of(delivery(group=""))
