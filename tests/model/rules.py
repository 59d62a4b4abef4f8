"""The rules of replication, one function each; their numbers are those of the README.

Each answers a question about one broker; none changes a state. A rule that a run breaks on purpose
says so in its own lines, nowhere else.
"""

from __future__ import annotations

from tests.model.run import Broken, Run
from tests.model.state import DISK, Force, Log, Member, Node, Record, entry, epoch_of


def required(node: Node, broken: Broken) -> frozenset[Member]:
    """Return who must acknowledge: every member of every set that may be the recorded one (1, 3).

    While a swap is out or its outcome is not known, that is the old set and the new one.
    """
    old = node.reign().members
    if node.swap is None:
        return old
    new = node.swap.members
    if broken.shrink_at_once and len(new) < len(old):
        return new
    if broken.grow_late and not new <= old:
        return old
    return old | new


def acknowledged(node: Node, member: Member, broken: Broken) -> int:
    """Return up to where a member acknowledged in this reign (1); one life, not its broker (4)."""
    if broken.ack_of_earlier_life:
        return max((length for one, length in node.acks if one.broker == member.broker), default=0)
    for one, length in node.acks:
        if one == member:
            return length
    return 0


def begun(node: Node) -> int:
    """Return the place of the EPOCH record of the reign that a primary leads."""
    return node.log.index(entry(node.reign().epoch)) + 1


def commit_mark(broker: int, node: Node, broken: Broken) -> int:
    """Return C: up to it entries are on the primary's disk and acknowledged by all required (1).

    It is 0 until it covers the EPOCH record of the reign (2).
    """
    mark = len(node.log) if broken.answer_before_sync else node.synced
    if not broken.answer_before_ack:
        for member in required(node, broken):
            if member.broker != broker:
                mark = min(mark, acknowledged(node, member, broken))
    if mark < begun(node) and not broken.epoch_not_awaited:
        return 0
    return mark


def may_join(broker: int, node: Node, joiner: Member, broken: Broken) -> bool:
    """Return whether a follower holds this reign's EPOCH and everything up to C (3)."""
    if broken.joiner_not_checked:
        return True
    length = acknowledged(node, joiner, broken)
    if length < commit_mark(broker, node, broken):
        return False
    return length >= begun(node) or broken.joiner_without_epoch


def membership(run: Run, broker: int, node: Node) -> Member:
    """Return what a broker is a member as: this process life, or its disk (4)."""
    return Member(broker, DISK if run.synced_acks else node.life)


def may_stand(run: Run, broker: int, node: Node, record: Record) -> bool:
    """Return whether a broker is the recorded primary, or a member in this life (5)."""
    if record.primary == broker or membership(run, broker, node) in record.members:
        return True
    broken = run.broken
    return broken.anyone_elected or (
        broken.member_by_name and any(member.broker == broker for member in record.members)
    )


def elected(run: Run, broker: int, node: Node, record: Record) -> frozenset[Member]:
    """Return the members that a broker proposes as it stands: all but the primary before (5, 9)."""
    out = {broker} if run.broken.old_primary_kept else {broker, record.primary}
    kept = frozenset(member for member in record.members if member.broker not in out)
    return kept | {membership(run, broker, node)}


def may_follow(node: Node, epoch: int, broken: Broken) -> bool:
    """Return whether an epoch is not below the largest in the journal or in this life (6)."""
    if broken.lower_epoch_followed:
        return True
    largest = epoch_of(node.log[-1]) if node.log else 0
    return epoch >= (largest if broken.promises_forgotten else max(largest, node.told))


def promised(run: Run, node: Node, log: Log) -> int:
    """Return the epoch below which a broker follows nobody behind a restart (4, 6).

    It is the largest in its journal; if it stays a member, also what it has written down.
    """
    journal = epoch_of(log[-1]) if log else 0
    if run.synced_acks and not run.broken.promise_not_in_copy:
        return max(journal, node.told)
    return journal


def known_committed(node: Node, forces: tuple[Force, ...], broken: Broken) -> int:
    """Return up to where a broker knows its journal to be committed (7).

    That is the mark that it was told; of a mark from before a forced promotion, what that kept
    (10).
    """
    if broken.earlier_force_ignored:
        return node.mark
    return min([node.mark, *(force.kept for force in forces if force.epoch > node.marked)])


def accepts(run: Run, node: Node, record: Record) -> Force:
    """Return what an operator accepts who promotes a copy: to lose what it does not know (10)."""
    if run.broken.force_keeps_its_end:
        return Force(record.epoch + 1, len(node.log))
    return Force(record.epoch + 1, known_committed(node, record.forces, run.broken))


def may_hand_over(broker: int, node: Node, member: Member, target: Node, broken: Broken) -> bool:
    """Return whether a switch may name a member: C is the end, and its disk has all of it (9)."""
    if commit_mark(broker, node, broken) != len(node.log):
        return False
    if broken.switch_not_synced:
        return acknowledged(node, member, broken) == len(node.log)
    return target.log[: target.synced] == node.log


def common(one: Log, other: Log) -> int:
    """Return how many entries two journals have in common from their beginning."""
    count = 0
    for mine, yours in zip(one, other, strict=False):
        if mine != yours:
            break
        count += 1
    return count
