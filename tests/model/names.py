"""How brokers, entries and records are written in a trace."""

from __future__ import annotations

from collections.abc import Iterable

from tests.model.state import DISK, Entry, Member, epoch_of, number_of


def letter(broker: int) -> str:
    """Return the name of a broker: A, B, C."""
    return "ABCDEFGH"[broker]


def member_text(member: Member) -> str:
    """Return a member: the broker and the life, or the broker alone if its disk is the member."""
    life = "" if member.life == DISK else str(member.life)
    return f"{letter(member.broker)}{life}"


def members_text(members: Iterable[Member]) -> str:
    """Return a set of members."""
    return "+".join(member_text(member) for member in sorted(members))


def entry_text(one: Entry) -> str:
    """Return an entry: E2 for an EPOCH record, 2m1 for message 1 of epoch 2."""
    number = number_of(one)
    return f"{epoch_of(one)}m{number}" if number else f"E{epoch_of(one)}"
