"""Each state as one integer, the same for states that differ only in the names of brokers.

Integers take a tenth of the memory of states. The parts of a state (its brokers, everything else)
are numbered as they are met; the code of a state has the numbers of its parts side by side.

**Symmetry.** At the beginning, broker 0 leads and all others are in the same state; no step and no
invariant asks for the number of a broker, except to tell brokers apart. So if two states differ by
a permutation of the brokers other than 0, then what may follow them, and what is violated, differs
by the same permutation, and it is enough to explore one of the two. The code of a state is the
least of the codes of all its permutations.
"""

from __future__ import annotations

from itertools import permutations
from typing import Final, NamedTuple

from tests.model.state import (
    Ack,
    Entry,
    Leader,
    Left,
    Member,
    Node,
    Record,
    State,
    Swap,
)

_BITS: Final = 28
"""Of the number of a part. A run that has more parts than that has no memory left, either."""
_Rest = tuple[Record, frozenset[Swap], frozenset[tuple[int, Entry]], Left, bool]
"""A state without its brokers."""


class Numbered(NamedTuple):
    """A state with the numbers of its parts."""

    state: State
    nodes: list[int]
    rest: int


class Codes:
    """The codes of the states of one run."""

    def __init__(self, brokers: int) -> None:
        self._nodes: dict[Node, int] = {}
        self._rests: dict[_Rest, int] = {}
        self._renamings = [
            Renaming((0, *order), self) for order in permutations(range(1, brokers))
        ][1:]  # the first changes nothing

    def numbered(self, state: State) -> Numbered:
        """Return a state with the numbers of its parts."""
        return Numbered(state, [self.node(one) for one in state.nodes], self.rest(state[1:]))

    def code(self, state: State, before: Numbered) -> int:
        """Return the code of a state; ``before``, a step earlier, saves most of the work.

        A step leaves most parts as they are, the same objects, so they have the same numbers.
        """
        nodes = [
            number if new is old else self.node(new)
            for new, old, number in zip(state.nodes, before.state.nodes, before.nodes, strict=True)
        ]
        old = before.state
        if (
            state.record is old.record
            and state.swaps is old.swaps
            and state.answered is old.answered
            and state.left is old.left
            and state.asked_to_cut is old.asked_to_cut
        ):
            rest = before.rest
        else:
            rest = self.rest(state[1:])
        least = _packed(nodes, rest)
        for renaming in self._renamings:
            code = renaming.code(state, nodes, rest)
            if code < least:
                least = code
        return least

    def node(self, node: Node) -> int:
        """Return the number of a broker's state."""
        return self._nodes.setdefault(node, len(self._nodes))

    def rest(self, rest: _Rest) -> int:
        """Return the number of everything else in a state."""
        return self._rests.setdefault(rest, len(self._rests))


class Renaming:
    """A permutation of the brokers, and what it makes of each part that it was applied to.

    ``order[b]`` is the new number of broker ``b``.
    """

    def __init__(self, order: tuple[int, ...], codes: Codes) -> None:
        self.order = order
        self.places = [order.index(broker) for broker in range(len(order))]
        self.codes = codes
        self.nodes: dict[int, int] = {}
        self.rests: dict[int, int] = {}

    def state(self, state: State) -> State:
        """Return the state that results."""
        nodes = tuple(self._node(state.nodes[place]) for place in self.places)
        return State(nodes, *self._rest(state))

    def code(self, state: State, nodes: list[int], rest: int) -> int:
        """Return the code of the state that results; ``nodes`` and ``rest`` number its parts."""
        renamed = []
        for place in self.places:
            number = self.nodes.get(nodes[place])
            if number is None:
                number = self.codes.node(self._node(state.nodes[place]))
                self.nodes[nodes[place]] = number
            renamed.append(number)
        after = self.rests.get(rest)
        if after is None:
            after = self.codes.rest(self._rest(state))
            self.rests[rest] = after
        return _packed(renamed, after)

    def _rest(self, state: State) -> _Rest:
        return (
            self._record(state.record),
            frozenset(
                Swap(self._member(swap.sender), self._record(swap.record)) for swap in state.swaps
            ),
            state.answered,
            state.left,
            state.asked_to_cut,
        )

    def _node(self, node: Node) -> Node:
        return node._replace(
            known=node.known and self._record(node.known),
            swap=node.swap and self._record(node.swap),
            named=node.named and self._record(node.named),
            acks=frozenset((self._member(member), length) for member, length in node.acks),
            follows=node.follows and self._leader(node.follows),
            ack=node.ack and Ack(self._leader(node.ack.leader), node.ack.length),
        )

    def _record(self, record: Record) -> Record:
        return record._replace(
            primary=self.order[record.primary],
            members=frozenset(self._member(member) for member in record.members),
        )

    def _member(self, member: Member) -> Member:
        return Member(self.order[member.broker], member.life)

    def _leader(self, leader: Leader) -> Leader:
        return Leader(leader.epoch, self.order[leader.broker])


def _packed(nodes: list[int], rest: int) -> int:
    code = rest
    for number in nodes:
        code = code << _BITS | number
    return code
