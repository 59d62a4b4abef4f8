"""What happens to brokers: the register takes a swap, an outcome becomes known, a process ends."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.names import letter, member_text, members_text
from tests.model.reign import begin, disconnected, ended
from tests.model.rules import promised
from tests.model.run import Run
from tests.model.state import Member, Node, State, Step, Swap


def take(state: State, swap: Swap) -> Step:
    """Return that the register takes a swap; all others under way can only be refused from now on.

    That a refusal is decided at once changes nothing: when the sender learns of it is open, as that
    of a swap that was taken.
    """
    record = swap.record
    nodes = []
    for broker, before in enumerate(state.nodes):
        after = before
        if before.outcome == "out":
            own = swap.sender == Member(broker, before.life) and before.swap == record
            after = before._replace(outcome="taken") if own else refused(before)
        if record.primary == broker != swap.sender.broker and before.life == record.life:
            # The life that a switch names: it may learn of it at any time.
            after = after._replace(named=record)
        nodes.append(after)
    answered = state.answered
    if len(record.forces) > len(state.record.forces):
        kept = record.forces[-1].kept
        answered = frozenset((place, one) for place, one in answered if place <= kept)
    return Step(
        f"the register takes the swap of {member_text(swap.sender)}: version {record.version}, "
        f"epoch {record.epoch}, {letter(record.primary)} of {members_text(record.members)}",
        state._replace(nodes=tuple(nodes), record=record, swaps=frozenset(), answered=answered),
    )


def refused(node: Node) -> Node:
    """Return a broker whose swap can only be refused.

    A primary goes on as before until it learns that. Who stands does nothing until then, as a
    follower may.
    """
    if node.role == "stands":
        return node._replace(role="follows", swap=None, outcome="")
    return node._replace(outcome="refused")


def learn(run: Run, state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield that a broker learns the outcome of its swap, by the answer or by reading (8).

    As long as the register has the version that the swap expects, a reading says nothing: the swap
    may still be taken.
    """
    name = letter(broker)
    record = node.swap
    assert record is not None
    if node.outcome == "taken":
        if node.role == "serves" and node.reign().epoch == record.epoch:
            settled = node._replace(known=record, swap=None, outcome="")
            yield Step(f"{name} learns that its set is recorded", state.with_node(broker, settled))
        elif node.role == "stands":
            yield Step(
                f"{name} learns that it leads epoch {record.epoch}",
                begin(run, state, broker, node, record),
            )
        else:
            yield Step(f"{name} learns that it has handed over", ended(run, state, broker, node))
    elif node.outcome == "refused":
        yield Step(
            f"{name} learns that it was refused, and ends its reign",
            ended(run, state, broker, node),
        )
    role, broken = node.role, run.broken
    if broken.unknown_is_failed if role == "serves" else broken.stand_given_up:
        forgotten = node._replace(
            role="follows" if role == "stands" else role, swap=None, outcome=""
        )
        yield Step(f"{name} takes its swap for failed", state.with_node(broker, forgotten))


def crash(run: Run, state: State, broker: int, node: Node) -> Iterator[Step]:
    """Yield each way in which a process ends and the next life of the broker begins.

    A kill keeps the file, a power cut any part that was not synced from its beginning; the start
    syncs what it finds. A broker that is down is not told apart from one that is silent.
    """
    left = state.left._replace(crashes=state.left.crashes - 1)
    for kept in range(node.synced, len(node.log) + 1):
        after = Node(
            life=node.life + 1,
            log=node.log[:kept],
            synced=kept,
            told=promised(run, node, node.log[:kept]),
            mark=min(node.mark, kept),
            marked=node.marked,
        )
        crashed = state.with_node(broker, after)._replace(left=left)
        if node.known is not None:
            crashed = disconnected(run, crashed, node.leader(broker))
        lost = f" and loses all behind {kept}" if kept < len(node.log) else ""
        yield Step(f"{letter(broker)} crashes{lost}", crashed)
