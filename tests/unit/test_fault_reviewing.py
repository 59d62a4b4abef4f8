"""The judge of order in histories of several consumers: what it finds, and what it lets pass."""

from __future__ import annotations

from typing import Any

from tests.fault.messages import LEDGER
from tests.fault.server.reviewing import overlaps

A, B = 330, 266
NEVER = 1 << 63


def out(session: int, lease: int, *offsets: int, until: int = 1000, at: int = 0) -> dict[str, Any]:
    rows = [(offset, 1, 1, None, False, "key-7") for offset in offsets]
    return {
        "op": "out", "T": LEDGER, "g": "books", "q": 0, "e": 1, "l": lease, "s": session,
        "until": until, "rows": rows, "t": at, "m": at,
    }  # fmt: skip


def settle(lease: int, outcome: str, *offsets: int) -> dict[str, Any]:
    return {
        "op": "settle", "T": LEDGER, "g": "books", "q": 0, "e": 1, "l": lease, "o": outcome,
        "rows": list(offsets), "t": 0, "m": 0,
    }  # fmt: skip


def test_two_that_have_a_key_at_one_time_are_found() -> None:
    lines = [out(A, 1, 4, 5), settle(1, "DONE", 4), out(B, 2, 6)]
    assert overlaps(lines, {}) == [f"key-7: 6 goes to {B} while {A} has 5"]


def test_one_after_the_other_is_no_overlap() -> None:
    assert not overlaps([out(A, 1, 4, 5), settle(1, "DONE", 4, 5), out(B, 2, 6)], {})
    assert not overlaps([out(A, 1, 4, 5), settle(1, "RETRY", 4), out(B, 2, 4, 5)], {})
    assert not overlaps([out(A, 1, 4, 5, until=9), out(B, 2, 4, 5, at=9)], {})
    assert not overlaps([out(A, 1, 4, 5), out(B, 2, 4, 5, at=9)], {A: 8})


def test_a_settle_that_was_lost_and_tried_again_with_another_outcome() -> None:
    first = [out(A, 1, 4, 5, 6), settle(1, "DONE", 4)]
    assert not overlaps([*first, settle(1, "RETRY", 4), out(B, 2, 4, 5, 6)], {})
    assert overlaps([*first, settle(1, "DEAD", 4), out(B, 2, 4, 5, 6)], {})
