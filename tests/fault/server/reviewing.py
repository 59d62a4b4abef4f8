"""Histories of several processes put in one order, and what is checked besides the verifier."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.fault import history
from tests.fault.history import Line
from tests.fault.messages import LEDGER


def merged(records: Iterable[Path], into: Path) -> Path:
    """Write the lines of several histories into one file, in the order of their times.

    ``m`` is CLOCK_MONOTONIC, which all processes of a machine share: what was known before
    something else was done stands before it.
    """
    lines = [line for record in records for line in history.read(record)]
    lines.sort(key=lambda line: line["m"])
    into.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return into


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


def overlaps(lines: Sequence[Line], ended: dict[int, int]) -> list[str]:
    """Return where two consumers of an ordered group had rows of one key in hand at one time.

    Args:
        lines: Of all consumers, in order.
        ended: Session -> when its consumer was killed.
    """
    holders: dict[tuple[str, int, str], dict[int, int]] = {}
    """Group, queue, key -> offset -> session."""
    taken: dict[int, list[tuple[tuple[str, int, str], int]]] = {}
    keys: dict[tuple[str, int, int], str] = {}
    problems = []
    for line in lines:
        if line.get("T") != LEDGER:
            continue
        if line["op"] == "out":
            for offset, _, _, _, _, key in line["rows"]:
                place = (line["g"], line["q"], key)
                keys[line["g"], line["q"], offset] = key
                held = holders.setdefault(place, {})
                for other, session in list(held.items()):
                    if session == line["s"]:
                        continue
                    if ended.get(session, 1 << 63) < line["m"]:
                        del held[other]
                    else:
                        problems.append(
                            f"{place}: {offset} to {line['s']}, while {session} holds {other}"
                        )
                held[offset] = line["s"]
        elif line["op"] == "settle":
            taken[line["n"]] = [
                ((line["g"], line["q"], keys[line["g"], line["q"], offset]), offset)
                for offset in line["rows"]
            ]
            for place, offset in taken[line["n"]]:
                holders[place].pop(offset, None)
    return problems


def deliveries(lines: Sequence[Line]) -> Counter[tuple[str, str, int, int]]:
    """Return how often each row came to each group."""
    counts: Counter[tuple[str, str, int, int]] = Counter()
    for line in lines:
        if line["op"] == "out":
            for row in line["rows"]:
                counts[line["g"], line["T"], line["q"], row[0]] += 1
    return counts
