"""What a broker that does not lead may do next: follow, sync, stand."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.names import letter
from tests.model.reign import begin, sent
from tests.model.rules import (
    accepts,
    common,
    elected,
    known_committed,
    may_follow,
    may_stand,
    membership,
)
from tests.model.run import Run
from tests.model.state import Ack, Node, Record, State, Step


def steps(run: Run, state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield what a follower may do next."""
    for other, primary in enumerate(state.nodes):
        if primary.role == "serves":
            if node.follows == primary.leader(other):
                yield from copy(run, state, broker, node, other)
            else:
                yield from connect(run, state, broker, node, other)
    if node.synced < len(node.log):
        yield sync(run, state, broker, node)
    yield from stand(run, state, broker, node)
    yield from named(run, state, broker, node)
    if run.forces:
        yield from force(run, state, broker, node)
    if run.broken.reign_resumed:
        yield from resume(run, state, broker, node)


def connect(run: Run, state: State, broker: int, node: Node, other: int) -> Iterator[Step]:
    """Yield that a broker follows a primary, and cuts what that primary does not have (6, 7).

    From now on it never follows a lower epoch in this life; with the acknowledgement after the
    sync, the promise is on disk before it acknowledges.
    """
    primary = state.nodes[other]
    leader = primary.leader(other)
    if not may_follow(node, leader.epoch, run.broken):
        return
    kept = common(node.log, primary.log)
    known = known_committed(node, primary.reign().forces, run.broken)
    if kept < known and not run.broken.cut_below_mark:
        text = f"{letter(broker)} does not follow {letter(other)}: it would have to cut to {kept}"
        yield Step(text, state._replace(asked_to_cut=True))
        return
    synced = min(node.synced, kept)
    after_sync = run.synced_acks and not run.broken.ack_before_own_sync
    follower = node._replace(
        log=node.log[:kept],
        synced=synced,
        follows=leader,
        ack=Ack(leader, synced if after_sync else kept),
        told=node.told if run.broken.followed_forgotten else max(node.told, leader.epoch),
        mark=min(known, kept),
        marked=leader.epoch if run.forces else 0,
    )
    yield Step(
        f"{letter(broker)} follows {letter(other)} in epoch {leader.epoch} and keeps {kept}",
        state.with_node(broker, follower),
    )


def copy(run: Run, state: State, broker: int, node: Node, other: int) -> Iterator[Step]:
    """Yield that a follower writes the next entry to its file and acknowledges it."""
    primary = state.nodes[other]
    length = len(node.log) + 1
    if length > len(primary.log) or primary.log[: length - 1] != node.log:
        return
    follower = node._replace(log=primary.log[:length])
    if not run.synced_acks or run.broken.ack_before_own_sync:
        follower = follower._replace(ack=Ack(primary.leader(other), length))
    yield Step(
        f"{letter(broker)} copies place {length} from {letter(other)}",
        state.with_node(broker, follower),
    )


def sync(run: Run, state: State, broker: int, node: Node) -> Step:
    """Return that a follower syncs; where that is the rule, it acknowledges now (4)."""
    length = len(node.log)
    node = node._replace(synced=length)
    if run.synced_acks and node.follows is not None:
        node = node._replace(ack=Ack(node.follows, length))
    return Step(f"{letter(broker)} syncs its journal", state.with_node(broker, node))


def stand(run: Run, state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield that a broker stops acknowledging, syncs everything and asks to lead (5)."""
    record = state.record
    if not may_stand(run, broker, node, record):
        return
    # A restart of the recorded primary is no change of its own: it takes its next epoch.
    restarted = record.primary == broker and record.life != node.life
    if not restarted and not state.left.changes:
        return
    wanted = Record(
        version=record.version + 1,
        epoch=record.epoch + 1,
        primary=broker,
        life=node.life,
        members=elected(run, broker, node, record),
        forces=record.forces,
    )
    asked = sent(state, broker, _standing(run, node), wanted)
    if restarted:
        asked = asked._replace(left=state.left)
    yield Step(f"{letter(broker)} stands for epoch {wanted.epoch}", asked)


def named(run: Run, state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield that a broker learns that a switch names it in this life, and begins its reign (9)."""
    record = node.named
    if record is not None and record.epoch > node.told:
        yield Step(
            f"{letter(broker)} learns that it leads epoch {record.epoch}",
            begin(run, state, broker, node, record),
        )


def force(run: Run, state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield that an operator promotes a copy that is no member, as nobody leads (10)."""
    record = state.record
    primary = state.nodes[record.primary]
    if not state.left.changes or record.primary == broker:
        return
    if membership(run, broker, node) in record.members:
        return
    if primary.known is not None and primary.known.epoch == record.epoch:
        return
    accepted = accepts(run, node, record)
    wanted = Record(
        version=record.version + 1,
        epoch=record.epoch + 1,
        primary=broker,
        life=node.life,
        members=frozenset({membership(run, broker, node)}),
        forces=(*record.forces, accepted),
    )
    yield Step(
        f"{letter(broker)} is promoted by force: all behind place {accepted.kept} may be lost",
        sent(state, broker, _standing(run, node), wanted),
    )


def resume(run: Run, state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield what the mutant ``reign_resumed`` does: a restarted primary goes on in its epoch."""
    record = state.record
    if record.primary == broker and record.life != node.life:
        yield Step(
            f"{letter(broker)} goes on with epoch {record.epoch}",
            begin(run, state, broker, node, record._replace(life=node.life)),
        )


def _standing(run: Run, node: Node) -> Node:
    broken = run.broken
    return node._replace(
        role="stands",
        synced=node.synced if broken.swap_before_sync else len(node.log),
        follows=node.follows if broken.stand_without_stopping else None,
        named=None,
    )
