"""What must hold in every state."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, get_args

from tests.model.names import entry_text, letter, member_text
from tests.model.rules import common
from tests.model.state import DISK, Entry, Log, State, epoch_of

Kind = Literal["lost", "twice", "writers", "gone", "member", "asked to cut"]
"""Which of them is violated."""
KINDS: tuple[Kind, ...] = get_args(Kind)
HARM: tuple[Kind, ...] = ("lost", "twice", "writers")
"""What a client would notice. The others hold, too; they are why these hold."""


def violations(state: State) -> Iterable[tuple[Kind, str]]:
    """Yield what does not hold in a state."""
    record, nodes, answered = state.record, state.nodes, state.answered
    if len({place for place, _ in answered}) < len(answered):
        yield "twice", "two answered messages have the same place"
    primary = nodes[record.primary]
    leads = primary.known is not None and primary.known.epoch == record.epoch
    if answered:
        name = letter(record.primary)
        if leads and (lacked := _lacked(primary.log, answered)):
            yield "lost", f"{name} leads the recorded reign and lacks {lacked}"
        if lacked := _lacked(primary.log[: primary.synced], answered):
            yield "member", f"{name} is the recorded primary, and its disk lacks {lacked}"
        for member in sorted(record.members):
            node = nodes[member.broker]
            log = node.log[: node.synced] if member.life == DISK else node.log
            if member.life in (DISK, node.life) and (lacked := _lacked(log, answered)):
                yield "member", f"{member_text(member)} is a recorded member and lacks {lacked}"
        if any(all(_lacked(node.log, {one}) for node in nodes) for one in answered):
            yield "gone", "no journal has a message that was answered"
    for broker, node in enumerate(nodes):
        for other in range(broker):
            if node.log is not nodes[other].log and _two_writers(node.log, nodes[other].log):
                yield "writers", f"{letter(other)} and {letter(broker)} differ within an epoch"
    if state.asked_to_cut:
        yield "asked to cut", "a broker would have to cut below the commit mark that it was told"


def _lacked(log: Log, answered: Iterable[tuple[int, Entry]]) -> str:
    for place, one in answered:
        if len(log) < place or log[place - 1] != one:
            return f"{entry_text(one)} at place {place}, which was answered"
    return ""


@lru_cache(maxsize=1 << 16)
def _two_writers(one: Log, other: Log) -> bool:
    """Return whether two journals have entries of one epoch behind the place where they differ.

    An epoch has one writer, who never goes back within it; so one of two journals has the beginning
    of what the other has of an epoch, or all that went before it differs, and both cannot be.
    """
    same = common(one, other)
    return not {epoch_of(mine) for mine in one[same:]}.isdisjoint(
        epoch_of(yours) for yours in other[same:]
    )
