"""The table of group modes, as the views look things up in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ternmq.broker.delivery.locked import QUEUE_LOCK
from ternmq.broker.delivery.modes import MODES
from ternmq.broker.delivery.ordered import ORDERED
from ternmq.broker.delivery.shared import SHARED
from ternmq.broker.group.mode import GroupModes
from ternmq.broker.group.order import UNORDERED
from ternmq.model.errors import CorruptJournal
from ternmq.model.specs import Mode


def test_a_mode_is_found_by_its_name_and_by_its_number():
    modes = GroupModes([SHARED, ORDERED])
    assert modes[Mode.ORDERED] is modes.numbered(1) is ORDERED
    assert list(modes) == [SHARED, ORDERED]


def test_the_numbers_of_the_modes_stay_what_they_are():
    assert {mode.name: mode.number for mode in MODES} == {
        Mode.SHARED: 0, Mode.ORDERED: 1, Mode.QUEUE_LOCK: 2, Mode.OWNED: 3, Mode.EXCLUSIVE: 4,
        Mode.BROADCAST: 5,
    }  # fmt: skip
    assert GroupModes(MODES).numbered(2) is QUEUE_LOCK
    assert set(GroupModes(MODES)) == {GroupModes(MODES)[name] for name in Mode}


def test_a_mode_blocks_if_and_only_if_it_has_an_order():
    for mode in MODES:
        assert mode.blocks == (mode.new_order() is not UNORDERED) == mode.name.keeps_order
        assert mode.holds == mode.name.keeps_order


def test_no_name_and_no_number_is_registered_twice():
    for twice in (replace(ORDERED, number=0), replace(ORDERED, name=Mode.SHARED), SHARED):
        with pytest.raises(ValueError, match="twice"):
            GroupModes([SHARED, twice])


def test_a_number_that_no_mode_has_is_damage():
    with pytest.raises(CorruptJournal, match="group mode in STATE: 7"):
        GroupModes([SHARED]).numbered(7)
