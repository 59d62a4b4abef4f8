"""What a primary may do next, and how a reign begins and ends.

A *reign* is what one life of a broker does in one epoch. It begins when that life knows that its
swap was taken, with an EPOCH record that is synced before anything else happens.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.names import letter, members_text
from tests.model.rules import commit_mark, known_committed, may_hand_over, may_join, membership
from tests.model.run import Run
from tests.model.state import (
    Leader,
    Member,
    Node,
    Record,
    State,
    Step,
    Swap,
    entry,
    number_of,
)


def steps(run: Run, state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield what a primary that serves may do next."""
    yield from append(run, state, broker, node)
    if node.synced < len(node.log):
        yield Step(
            f"{letter(broker)} syncs its journal",
            state.with_node(broker, node._replace(synced=len(node.log))),
        )
    yield from commit(run, state, broker, node)
    yield from receive(run, state, broker, node)
    if run.marks:
        yield from tell(run, state, broker, node)
    if node.swap is None and state.left.changes:
        yield from shrink(state, broker, node)
        yield from grow(run, state, broker, node)
        if run.switches:
            yield from hand_over(run, state, broker, node)
    yield from end(run, state, broker, node)


def append(run: Run, state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield that a primary writes the next message to its file."""
    left = state.left
    if left.messages:
        number = run.messages - left.messages + 1
        log = (*node.log, entry(node.reign().epoch, number))
        yield Step(
            f"{letter(broker)} appends message {number}",
            state.with_node(broker, node._replace(log=log))._replace(
                left=left._replace(messages=left.messages - 1)
            ),
        )


def commit(run: Run, state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield that C moves to where it may be, and all below is answered.

    An answer to less is no case of its own: it would only promise less.
    """
    mark, epoch = commit_mark(broker, node, run.broken), node.reign().epoch
    answered, forces = state.answered, state.record.forces
    # Who promotes a copy by force accepts to lose what earlier reigns still answer.
    if not forces or epoch >= forces[-1].epoch:
        answered |= {(place, one) for place, one in enumerate(node.log[:mark], 1) if number_of(one)}
    raised = run.marks and mark > node.mark
    if raised:
        node = node._replace(mark=mark, marked=epoch if run.forces else 0)
    if raised or answered != state.answered:
        yield Step(
            f"{letter(broker)} commits and answers up to place {mark}",
            state.with_node(broker, node)._replace(answered=answered),
        )


def receive(run: Run, state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield that an acknowledgement of this reign arrives (1)."""
    epoch = node.reign().epoch
    for other, sender in enumerate(state.nodes):
        ack = sender.ack
        if ack is None or ack.leader.broker != broker:
            continue
        if ack.leader.epoch != epoch and not run.broken.ack_of_earlier_epoch:
            continue
        member = membership(run, other, sender)
        before = dict(node.acks)
        if before.get(member, 0) < ack.length:
            acks = frozenset({**before, member: ack.length}.items())
            received = state.with_node(other, sender._replace(ack=None))
            yield Step(
                f"{letter(broker)} receives from {letter(other)} that it holds {ack.length}",
                received.with_node(broker, node._replace(acks=acks)),
            )


def tell(run: Run, state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield that a follower learns the commit mark, as far as it has the entries."""
    leader = node.leader(broker)
    for other, follower in enumerate(state.nodes):
        mark = min(node.mark, len(follower.log))
        if follower.follows == leader and mark > follower.mark:
            told = follower._replace(mark=mark, marked=leader.epoch if run.forces else 0)
            yield Step(
                f"{letter(broker)} tells {letter(other)} that {mark} is committed",
                state.with_node(other, told),
            )


def shrink(state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield that a primary asks to take a member out."""
    members = node.reign().members
    for member in sorted(members):
        if member.broker != broker:
            yield _change(
                state, broker, node, members - {member}, f"without {letter(member.broker)}"
            )


def grow(run: Run, state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield that a primary asks to take a follower in; it counts from now on (3)."""
    members = node.reign().members
    for joiner in sorted(_followers(run, state, broker, node) - members):
        if may_join(broker, node, joiner, run.broken):
            others = frozenset(one for one in members if one.broker != joiner.broker)
            yield _change(state, broker, node, others | {joiner}, f"with {members_text({joiner})}")


def hand_over(run: Run, state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield that a primary stops, and asks that a member leads; it stays a member (9)."""
    known = node.reign()
    for member in sorted(known.members):
        other = member.broker
        target = state.nodes[other]
        if other == broker or not may_hand_over(broker, node, member, target, run.broken):
            continue
        life = target.life if run.synced_acks else member.life
        record = known._replace(
            version=known.version + 1, epoch=known.epoch + 1, primary=other, life=life
        )
        asked = sent(state, broker, node, record)
        if not run.broken.switch_still_answers:
            asked = ended(run, asked, broker, asked.nodes[broker])
        yield Step(
            f"{letter(broker)} stops and asks that {letter(other)} leads epoch {record.epoch}",
            asked,
        )


def end(run: Run, state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield that a primary reads that a later reign is recorded, or that it resigns (9)."""
    deposed = state.record.epoch > node.reign().epoch
    if deposed or run.resigns:
        text = "reads that it is deposed" if deposed else "resigns"
        yield Step(f"{letter(broker)} {text}", ended(run, state, broker, node))


def begin(run: Run, state: State, broker: int, node: Node, record: Record) -> State:
    """Return the state in which a broker has written and synced EPOCH, and serves (5)."""
    epoch = entry(record.epoch)
    log = node.log if epoch in node.log else (*node.log, epoch)
    return state.with_node(
        broker,
        Node(
            life=node.life,
            log=log,
            synced=len(log),
            role="serves",
            known=record,
            told=max(node.told, record.epoch),
            mark=known_committed(node, record.forces, run.broken),
            marked=record.epoch if run.forces else 0,
        ),
    )


def ended(run: Run, state: State, broker: int, node: Node) -> State:
    """Return the state in which a primary is none any more; its swap stays under way."""
    follower = Node(
        life=node.life,
        log=node.log,
        synced=node.synced,
        told=node.told,
        mark=node.mark,
        marked=node.marked,
    )
    return disconnected(run, state.with_node(broker, follower), node.leader(broker))


def disconnected(run: Run, state: State, leader: Leader) -> State:
    """Return the state in which nobody is connected to a reign that has ended.

    Acknowledgements that are under way to it can have no effect any more: nobody leads an epoch
    twice. (Rules that are broken may let them have one.)
    """
    keep = run.broken.ack_of_earlier_epoch or run.broken.reign_resumed
    for broker, node in enumerate(state.nodes):
        follows = None if node.follows == leader else node.follows
        lost = node.ack is not None and node.ack.leader == leader and not keep
        ack = None if lost else node.ack
        if follows is not node.follows or ack is not node.ack:
            state = state.with_node(broker, node._replace(follows=follows, ack=ack))
    return state


def sent(state: State, broker: int, node: Node, record: Record) -> State:
    """Return the state in which a broker's swap is under way.

    If the register has gone on meanwhile, it can only be refused.
    """
    left = state.left._replace(changes=state.left.changes - 1)
    if record.version != state.record.version + 1:
        refused = node._replace(swap=record, outcome="refused")
        return state.with_node(broker, refused)._replace(left=left)
    swap = Swap(Member(broker, node.life), record)
    return state.with_node(broker, node._replace(swap=record, outcome="out"))._replace(
        swaps=state.swaps | {swap}, left=left
    )


def _change(state: State, broker: int, node: Node, members: frozenset[Member], text: str) -> Step:
    known = node.reign()
    record = known._replace(version=known.version + 1, members=members)
    return Step(f"{letter(broker)} asks for the set {text}", sent(state, broker, node, record))


def _followers(run: Run, state: State, broker: int, node: Node) -> frozenset[Member]:
    """Return the lives that a primary knows of: they acknowledged to it, or are connected."""
    leader = node.leader(broker)
    connected = {
        membership(run, other, follower)
        for other, follower in enumerate(state.nodes)
        if follower.follows == leader
    }
    return frozenset(connected | {member for member, _ in node.acks if member.broker != broker})
