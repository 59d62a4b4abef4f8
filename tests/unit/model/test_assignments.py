"""Assignments as text: what is read, what is refused, and how many there may be."""

from __future__ import annotations

import pytest

from ternmq.model.assignments import (
    MAX_ASSIGNMENTS,
    Assignment,
    check_assignments,
    read_assignment,
    write_assignment,
)
from ternmq.model.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "queues", "member", "again"),
    [
        ("0=a", (0,), "a", "0=a"),
        ("0-2,5=billing-*", (0, 1, 2, 5), "billing-*", "0-2,5=billing-*"),
        (" 5, 0-2 = web-? ", (0, 1, 2, 5), "web-?", "0-2,5=web-?"),
        ("3,3,2-4=*", (2, 3, 4), "*", "2-4=*"),
        ("4095=x_.Y", (4095,), "x_.Y", "4095=x_.Y"),
    ],
)
def test_what_is_read(text: str, queues: tuple[int, ...], member: str, again: str) -> None:
    assert read_assignment(text) == Assignment(queues, member)
    assert write_assignment(read_assignment(text)) == again


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not an assignment"),
        ("0", "not an assignment"),
        ("=a", "not an assignment"),
        ("0,=a", "not an assignment"),
        ("a=0", "not an assignment"),
        ("-1=a", "not an assignment"),
        ("0-=a", "not an assignment"),
        ("12345=a", "not an assignment"),
        ("2-1=a", "not a range of queues: '2-1'"),
        ("4096=a", "an assignment names one queue or more, each of them 0 to 4095"),
        ("0=", "not a pattern of member names"),
        ("0=a b", "not a pattern of member names"),
        ("0=[ab]", "not a pattern of member names"),
        ("0=a=b", "not a pattern of member names"),
        ("0=" + "a" * 65, "not a pattern of member names"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        read_assignment(text)


def test_there_may_be_so_many() -> None:
    one = Assignment((0,), "a")
    check_assignments([one] * MAX_ASSIGNMENTS)
    with pytest.raises(InvalidRequest, match="assign has 257 entries: at most 256"):
        check_assignments([one] * (MAX_ASSIGNMENTS + 1))
