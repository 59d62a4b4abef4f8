"""Names in a journal, read without the broker."""

from __future__ import annotations

import msgspec

from ternmq.journal.reader.names import Names
from ternmq.journal.state.sets import StateKey
from ternmq.model.types import Position
from ternmq.record.fact import state


def test_settings_of_a_newer_version_do_not_hide_names() -> None:
    known = Names()
    topics = [{"number": 1, "spec": {"name": "t", "durability": "of a later version"}}]
    known.load_object(StateKey(state.TOPICS), msgspec.msgpack.encode(topics), Position(0))
    groups = [{"topic": 1, "group": 2, "name": "g", "spec": {"mode": "of a later version"}}]
    known.load_object(StateKey(state.SUBSCRIPTIONS), msgspec.msgpack.encode(groups), Position(0))
    assert (known.topics[1].name, known.groups[2].name) == ("t", "g")
