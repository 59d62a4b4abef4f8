"""Who learns of a message that was sent without waiting for it."""

from __future__ import annotations

import os

import pytest

import ternmq
from ternmq.client.content.message import Receipt
from ternmq.client.producer.heard import SentSoon

RECEIPT = Receipt("t", 0, 7, True, False, 1, 1)


def test_another_process_is_told_at_once_where_no_hook_ran(monkeypatch: pytest.MonkeyPatch):
    waiting, done = SentSoon(), SentSoon()
    done.set_result(RECEIPT)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ternmq.ClientForked):
        waiting.result(60)
    with pytest.raises(ternmq.ClientForked):
        waiting.exception(60)
    assert done.result(0) is RECEIPT
