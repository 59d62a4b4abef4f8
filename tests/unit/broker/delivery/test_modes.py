"""Every mode that a client can state has a row in the table of group modes."""

from __future__ import annotations

from ternmq.broker.delivery.modes import MODES
from ternmq.model.specs import Mode


def test_every_mode_has_a_row():
    assert [mode.name for mode in MODES] == list(Mode)
