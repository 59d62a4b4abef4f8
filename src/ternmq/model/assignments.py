"""Configured assignments: which member owns which queues in a group of mode owned.

An assignment is written ``0-2,5=billing-*``: numbers and ranges of queues, ``=``, and a pattern of
member names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from ternmq.model.errors import InvalidRequest
from ternmq.model.printing import quoted

MAX_ASSIGNMENTS: Final = 256
"""Most assignments of a group."""
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*?-]{1,64}\Z")
_RANGE: Final = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?\Z")
_MOST_QUEUES: Final = 4096


class Assignment(msgspec.Struct, frozen=True, omit_defaults=True):
    """Queues, and the members that may own them."""

    queues: tuple[int, ...]
    """Numbers of the queues, ascending."""
    member: str
    """Pattern of the member's name: ``*`` stands for any characters, ``?`` for one."""

    def check(self) -> None:
        """Raise InvalidRequest if it has no queues, not in order, or a pattern that fits none."""
        if not self.queues or any(not 0 <= one < _MOST_QUEUES for one in self.queues):
            raise InvalidRequest(
                f"an assignment names one queue or more, each of them 0 to {_MOST_QUEUES - 1}"
            )
        if list(self.queues) != sorted(set(self.queues)):
            raise InvalidRequest("the queues of an assignment are named once, in ascending order")
        if _PATTERN.match(self.member) is None:
            raise InvalidRequest(
                f"not a pattern of member names: {quoted(self.member)}: 1 to 64 letters, digits, "
                "'.', '_', '-', and '*' for any characters, '?' for one"
            )

    def fits(self, name: str) -> bool:
        """Return whether a member of this name may own the queues."""
        return fnmatchcase(name, self.member)


def check_assignments(assign: Iterable[Assignment]) -> None:
    """Raise InvalidRequest if one of the assignments is not allowed, or there are too many."""
    listed = list(assign)
    if len(listed) > MAX_ASSIGNMENTS:
        raise InvalidRequest(f"assign has {len(listed)} entries: at most {MAX_ASSIGNMENTS}")
    for one in listed:
        one.check()


def read_assignment(text: str) -> Assignment:
    """Return what a text such as ``0-2,5=billing-*`` says.

    Raises:
        InvalidRequest: It is not written like that.
    """
    queues, equals, member = text.partition("=")
    numbers: set[int] = set()
    for part in queues.split(","):
        found = _RANGE.match(part.strip())
        if found is None or not equals:
            raise InvalidRequest(
                f"not an assignment: {quoted(text)}: write queues=member, such as 0-2,5=billing-*"
            )
        first = int(found[1])
        last = first if found[2] is None else int(found[2])
        if last < first:
            raise InvalidRequest(f"not a range of queues: {quoted(part.strip())}")
        numbers.update(range(first, last + 1))
    made = Assignment(tuple(sorted(numbers)), member.strip())
    made.check()
    return made


def write_assignment(one: Assignment) -> str:
    """Return an assignment as text; ``read_assignment`` reads it."""
    return f"{write_queues(one.queues)}={one.member}"


def write_queues(queues: Iterable[int]) -> str:
    """Return ascending numbers of queues as text, such as ``0-2,5``."""
    runs: list[list[int]] = []
    for queue in queues:
        if runs and queue == runs[-1][1] + 1:
            runs[-1][1] = queue
        else:
            runs.append([queue, queue])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
