"""The table of group modes, as the views look things up in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ternmq.broker.delivery.ordered import ORDERED
from ternmq.broker.delivery.shared import SHARED
from ternmq.broker.group.mode import GroupModes
from ternmq.model.errors import CorruptJournal
from ternmq.model.specs import Mode


def test_a_mode_is_found_by_its_name_and_by_its_number():
    modes = GroupModes([SHARED, ORDERED])
    assert modes[Mode.ORDERED] is modes.numbered(1) is ORDERED
    assert list(modes) == [SHARED, ORDERED]


def test_no_name_and_no_number_is_registered_twice():
    for twice in (replace(ORDERED, number=0), replace(ORDERED, name=Mode.SHARED), SHARED):
        with pytest.raises(ValueError, match="twice"):
            GroupModes([SHARED, twice])


def test_a_number_that_no_mode_has_is_damage():
    with pytest.raises(CorruptJournal, match="group mode in STATE: 7"):
        GroupModes([SHARED]).numbered(7)
