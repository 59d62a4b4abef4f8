"""What settles were answered: of the same session and bytes, and only so many."""

from __future__ import annotations

from ternmq.model.marks import Rests
from ternmq.server.desk.settled import KEPT, MOST_BYTES, Answered, SettledLately


def told(number: int) -> Answered:
    return Answered(b"answer", number, Rests.DURABLE)


def test_of_the_same_session_and_bytes() -> None:
    lately = SettledLately()
    lately.note(1, b"settle", told(7))
    assert lately.told(1, b"settle") == told(7)
    assert lately.told(2, b"settle") is None
    assert lately.told(1, b"other") is None


def test_the_newest_are_kept() -> None:
    lately = SettledLately()
    for number in range(KEPT + 10):
        lately.note(1, b"%d" % number, told(number))
    assert lately.told(1, b"9") is None
    assert lately.told(1, b"10") == told(10)
    assert lately.told(1, b"%d" % (KEPT + 9)) == told(KEPT + 9)


def test_long_ones_are_not() -> None:
    lately = SettledLately()
    lately.note(1, bytes(MOST_BYTES), told(1))
    lately.note(1, bytes(MOST_BYTES + 1), told(2))
    assert lately.told(1, bytes(MOST_BYTES)) == told(1)
    assert lately.told(1, bytes(MOST_BYTES + 1)) is None
