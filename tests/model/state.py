"""What a state of the model consists of: brokers, the register, swaps under way, what was answered.

All of it is immutable and hashable. Brokers are numbered from 0, places of a journal from 1, lives
of a broker from 1. An entry of a journal is one integer: its epoch and the number of its message;
number 0 is the EPOCH record of a reign.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, NewType

Entry = NewType("Entry", int)
"""``epoch << 8 | number``."""
Log = tuple[Entry, ...]
Role = Literal["follows", "stands", "serves"]
"""``follows``: also a broker that is down, silent, or follows nobody."""
Outcome = Literal["", "out", "taken", "refused"]
"""Of a broker's swap: none; under way; decided, which the broker does not know yet."""

DISK: Final = 0
"""The life in the membership of a broker that acknowledges after its sync: whoever has its disk."""
NONE: Final[frozenset[tuple[Member, int]]] = frozenset()


def entry(epoch: int, number: int = 0) -> Entry:
    """Return the entry of a message, or the EPOCH record of a reign."""
    return Entry(epoch << 8 | number)


def epoch_of(one: Entry) -> int:
    """Return the reign that wrote an entry."""
    return one >> 8


def number_of(one: Entry) -> int:
    """Return the number of an entry's message; 0: it is an EPOCH record."""
    return one & 0xFF


class Member(NamedTuple):
    """A process life of a broker; with the life ``DISK``, its disk."""

    broker: int
    life: int


class Force(NamedTuple):
    """A promotion by which an operator accepted loss.

    Attributes:
        epoch: Of the reign that it began.
        kept: Up to this place, the promoted copy was known to hold what was committed.
    """

    epoch: int
    kept: int


class Record(NamedTuple):
    """The leadership record: what the register holds, or what a swap wants it to hold.

    Attributes:
        version: Grows by 1 with each swap that is taken; a swap of version v expects v - 1.
        epoch: Of the reign that may append.
        primary: The broker that leads it.
        life: The life of that broker which may begin this reign.
        members: The recorded set, the primary included.
        forces: Promotions by force so far.
    """

    version: int
    epoch: int
    primary: int
    life: int
    members: frozenset[Member]
    forces: tuple[Force, ...]


class Swap(NamedTuple):
    """A swap under way: the register may take it at any time, or never."""

    sender: Member
    record: Record


class Leader(NamedTuple):
    """Whom a broker follows."""

    epoch: int
    broker: int


class Ack(NamedTuple):
    """An acknowledgement under way: its primary may receive it at any time, or never."""

    leader: Leader
    length: int


class Node(NamedTuple):
    """A broker.

    Attributes:
        life: Of its process.
        log: Its journal as its file has it, synced or not.
        synced: So many entries of it survive a power cut.
        role: What it does.
        known: The record by which it leads.
        swap: The record that it wants, while it does not know the outcome.
        outcome: Of that swap.
        acks: What it received as a primary: up to where each member holds its journal.
        follows: The primary that it is connected to.
        ack: Its newest acknowledgement, which may be under way.
        told: The largest epoch that it followed or led in this life.
        mark: The largest commit mark that it reached or was told.
        marked: The epoch of the primary that told it; 0 unless the run has forced promotions.
        named: The record of a switch that names it, until it begins that reign.
    """

    life: int
    log: Log
    synced: int
    role: Role = "follows"
    known: Record | None = None
    swap: Record | None = None
    outcome: Outcome = ""
    acks: frozenset[tuple[Member, int]] = NONE
    follows: Leader | None = None
    ack: Ack | None = None
    told: int = 0
    mark: int = 0
    marked: int = 0
    named: Record | None = None

    def reign(self) -> Record:
        """Return the record by which a primary leads."""
        assert self.known is not None
        return self.known

    def leader(self, broker: int) -> Leader:
        """Return whom the followers of this primary follow; ``broker`` is its number."""
        return Leader(self.reign().epoch, broker)


class Left(NamedTuple):
    """How much of each may still happen in a run."""

    messages: int
    crashes: int
    changes: int


class State(NamedTuple):
    """A state.

    Attributes:
        nodes: The brokers.
        record: What the register holds.
        swaps: Under way, those of lives that have ended included. All expect the present version.
        answered: Place and entry of each message that was answered; nobody in the model sees it.
        left: What may still happen.
        asked_to_cut: In the last step, a broker would have had to cut below its commit mark.
    """

    nodes: tuple[Node, ...]
    record: Record
    swaps: frozenset[Swap]
    answered: frozenset[tuple[int, Entry]]
    left: Left
    asked_to_cut: bool = False

    def with_node(self, broker: int, node: Node) -> State:
        """Return this state with another state of one broker."""
        nodes = (*self.nodes[:broker], node, *self.nodes[broker + 1 :])
        return State(nodes, self.record, self.swaps, self.answered, self.left)


class Step(NamedTuple):
    """What may happen next: in words, and the state behind it."""

    text: str
    state: State
