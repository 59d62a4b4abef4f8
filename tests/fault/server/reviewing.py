"""Histories of several processes put in one order, and what is checked besides the verifier."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.fault import history
from tests.fault.history import Line
from tests.fault.messages import LEDGER

GIVEN_BACK: Final = ("RETRY", "RELEASED")
LATE_NS: Final = 1_000_000_000
"""What is read so long after it was handed out was read late."""


def merged(records: Iterable[Path], into: Path) -> Path:
    """Write the lines of several histories into one file, in the order of their times.

    ``m`` is CLOCK_MONOTONIC, which all processes of a machine share: what was known before
    something else was done stands before it.
    """
    lines = [line for record in records for line in history.read(record)]
    _place_late_ones(lines)
    lines.sort(key=lambda line: line["m"])
    into.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return into


def _place_late_ones(lines: Sequence[Line]) -> None:
    """Give what was read late the time at which it was handed out.

    A consumer that was stopped reads, when it goes on, an answer of long ago: what others did
    meanwhile came after that hand-out. ``t`` is broker time, which runs beside the clock.
    """
    out = [line for line in lines if line["op"] == "out"]
    if out:
        behind_ns = min(line["m"] - line["t"] * 1000 for line in out)
        for line in out:
            handed_ns = line["t"] * 1000 + behind_ns
            if line["m"] - handed_ns > LATE_NS:
                line["m"] = handed_ns


def resends_without_need(lines: Sequence[Line]) -> list[str]:
    """Return the identities that were sent again although they had been answered: the driver's own
    rule, checked because the other checks rest on it."""
    answered: set[tuple[int, int]] = set()
    wrong = []
    for line in lines:
        if line["op"] == "sent":
            answered.add((line["a"][1], line["a"][2]))
        elif line["op"] == "try" and (line["a"][1], line["a"][2]) in answered:
            wrong.append(str(line["a"]))
    return wrong


class Hold(NamedTuple):
    """A row in a consumer's hand."""

    session: int
    until_us: int


def overlaps(lines: Sequence[Line], killed: Mapping[int, int]) -> list[str]:
    """Return where two consumers of an ordered group had rows of one key in hand at one time.

    Args:
        lines: Of all consumers, in order.
        killed: Session -> when its consumer was killed.
    """
    holds: dict[tuple[str, int, str], dict[int, Hold]] = {}
    """Group, queue, key -> offset -> who has it."""
    keys: dict[tuple[str, int, int], str] = {}
    owners: dict[tuple[str, int, int, int], int] = {}
    """Group, queue, epoch, lease -> session."""
    problems = []
    for line in lines:
        if line.get("T") != LEDGER or line["op"] not in ("out", "settle"):
            continue
        group, queue = line["g"], line["q"]
        if line["op"] == "settle":
            for offset in line["rows"]:
                held = holds[group, queue, keys[group, queue, offset]]
                held.pop(offset, None)
                if line["o"] in GIVEN_BACK:  # with the rest of its key
                    # The row itself may be gone from ``held``: an earlier settle of it was sent
                    # and lost with the connection, and this one is its second try.
                    owner = owners[group, queue, line["e"], line["l"]]
                    for other in [one for one, its in held.items() if its.session == owner]:
                        del held[other]
            continue
        owners[group, queue, line["e"], line["l"]] = line["s"]
        for offset, _, _, _, _, key in line["rows"]:
            keys[group, queue, offset] = key
            held = holds.setdefault((group, queue, key), {})
            for other, hold in list(held.items()):
                over = killed.get(hold.session, 1 << 63) < line["m"] or hold.until_us <= line["t"]
                if over:
                    del held[other]
                elif hold.session != line["s"]:
                    problems.append(
                        f"{key}: {offset} goes to {line['s']} while {hold.session} has {other}"
                    )
            held[offset] = Hold(line["s"], line["until"])
    return problems
