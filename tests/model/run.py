"""What a run explores: how many brokers, how much of each event, which rules are broken."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from tests.model.state import DISK, Left, Member, Node, Record, State, entry


@dataclass(frozen=True, slots=True)
class Broken:
    """Rules that are broken on purpose; each field is the name of a mutant, and one switch.

    The numbers are those of the rules in the README.
    """

    answer_before_sync: bool = False
    """1: the primary's own sync is not waited for."""
    answer_before_ack: bool = False
    """1: the members' acknowledgements are not waited for."""
    shrink_at_once: bool = False
    """1: while a swap that takes a member out is under way, only the new set counts."""
    grow_late: bool = False
    """3: a joiner counts only when its swap has returned."""
    unknown_is_failed: bool = False
    """1, 8: a swap without an answer is forgotten, as if it had been refused."""
    stand_given_up: bool = False
    """5, 8: who stands and has no answer follows again, as if it had been refused."""
    epoch_not_awaited: bool = False
    """2: a primary answers before its EPOCH is committed."""
    joiner_not_checked: bool = False
    """3: whoever follows may join."""
    joiner_without_epoch: bool = False
    """3: a joiner needs everything up to C, but not this reign's EPOCH."""
    member_by_name: bool = False
    """4, 5: a later life of a member may stand."""
    ack_of_earlier_life: bool = False
    """4: what one life of a broker acknowledged counts for its next."""
    ack_of_earlier_epoch: bool = False
    """1: an acknowledgement of an earlier reign counts in this one."""
    anyone_elected: bool = False
    """5: a broker that is no member may stand."""
    stand_without_stopping: bool = False
    """5: who stands goes on copying and acknowledging."""
    swap_before_sync: bool = False
    """5: who stands syncs only when the swap has returned."""
    reign_resumed: bool = False
    """5: a primary that restarts goes on in its epoch, without a swap."""
    lower_epoch_followed: bool = False
    """6: whoever serves is followed."""
    promises_forgotten: bool = False
    """6: only the epochs in the journal are remembered."""
    followed_forgotten: bool = False
    """6: of the epochs in this life, only those that the broker led are remembered."""
    promise_not_in_copy: bool = False
    """4, 6: a broker that acknowledges after its sync forgets at a restart what it followed."""
    ack_before_own_sync: bool = False
    """4: a member for longer than its life acknowledges before its sync."""
    cut_below_mark: bool = False
    """7: a broker cuts below the commit mark that it was told."""
    old_primary_kept: bool = False
    """9: at an election, too, the primary before stays a member."""
    switch_not_synced: bool = False
    """9: a switch names a member that has everything, but has not synced it."""
    switch_still_answers: bool = False
    """9: a primary goes on appending and answering while its switch is under way."""
    force_keeps_its_end: bool = False
    """10: a forced promotion takes the end of the copy for committed, not the mark it was told."""
    earlier_force_ignored: bool = False
    """10: a mark from before a forced promotion is believed behind it."""

    def names(self) -> tuple[str, ...]:
        """Return the names of the rules that are broken."""
        return tuple(one.name for one in fields(self) if getattr(self, one.name))


@dataclass(frozen=True, slots=True)
class Run:
    """The bounds of an exploration, and what may happen in it.

    Attributes:
        brokers: How many there are; all are members at the beginning, broker 0 leads.
        messages: How many messages may be sent.
        crashes: How many processes may end; with each, what was not synced may be lost or not.
        changes: How many swaps may be sent. The first swaps of a recorded primary that restarted
            do not count.
        resigns: A primary may end its reign without being deposed.
        marks: Primaries tell their followers the commit mark.
        synced_acks: Followers acknowledge after their sync, and stay members over restarts.
        switches: A primary may hand over to a member.
        forces: An operator may promote a copy that is no member.
        broken: Rules that are broken.
    """

    brokers: int = 2
    messages: int = 1
    crashes: int = 2
    changes: int = 3
    resigns: bool = False
    marks: bool = False
    synced_acks: bool = False
    switches: bool = False
    forces: bool = False
    broken: Broken = field(default_factory=Broken)

    def __post_init__(self) -> None:
        if self.forces and not self.marks:
            raise ValueError("forced promotions need marks: what is kept goes by them")

    def start(self) -> State:
        """Return the first state: broker 0 leads epoch 1, the others have its EPOCH record."""
        life = DISK if self.synced_acks else 1
        members = frozenset(Member(broker, life) for broker in range(self.brokers))
        record = Record(0, 1, 0, 1, members, ())
        follower = Node(life=1, log=(entry(1),), synced=1, told=1)
        primary = follower._replace(role="serves", known=record)
        nodes = (primary, *([follower] * (self.brokers - 1)))
        left = Left(self.messages, self.crashes, self.changes)
        return State(nodes, record, frozenset(), frozenset(), left)
