"""A peer on a plain blocking socket: well behaved, slow, frozen, or talking nonsense."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from ternmq.model.errors import NotABroker, ProtocolError, TernMQError
from ternmq.model.specs import SubscriptionSpec, TopicSpec
from ternmq.record.batch.batch import encode_bodies, topic_seed
from ternmq.record.fact.facts import Outcome
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from ternmq.wire.session import Answer, ClientSession, Push, Refusal, State
from tests.fault.processes import DEADLINE
from tests.fault.server.broker import APP, TOKEN, Address

READ_BYTES: Final = 1 << 20


class Peer:
    """One connection; leaving the context closes it.

    Args:
        address: Of the broker.
        hello: Whether to say who it is.
        window_bytes: Of the receive buffer; None: the machine's.
        name: Of the client.
        resume: A session to come back to; 0: a new one.
    """

    def __init__(
        self,
        address: Address,
        *,
        hello: bool = True,
        window_bytes: int | None = None,
        name: str = "peer",
        resume: int = 0,
    ) -> None:
        self.socket = socket.socket()
        self.pushes: list[Push] = []
        self.session = ClientSession()
        self._answers: dict[int, Answer | Refusal] = {}
        if window_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
        try:
            self.socket.settimeout(DEADLINE)
            self.socket.connect(address)
            if hello:
                self._hello(name, resume)
        except BaseException:
            self.socket.close()
            raise

    def _hello(self, name: str, resume: int) -> None:
        hello = control.Hello(client=name, app=APP, token=TOKEN, session=resume)
        self.send(self.session.hello(hello))
        while self.session.state is State.OPENING:
            self._receive()
        for event in self._answers.values():
            if isinstance(event, Refusal):
                raise event.error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes, whatever they are."""
        self.socket.sendall(data)

    def send_what_fits(self, data: bytes) -> int:
        """Send until the other side takes no more, or closes; return how much went."""
        self.socket.setblocking(False)
        sent = 0
        try:
            while sent < len(data):
                ready = select.select([], [self.socket], [], 0.2)[1]
                if not ready:
                    break
                sent += self.socket.send(data[sent : sent + (1 << 16)])
        except OSError:
            pass
        finally:
            self.socket.settimeout(DEADLINE)
        return sent

    def _receive(self) -> None:
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("closed by the broker")
        for event in self.session.receive(data):
            if isinstance(event, Push):
                self.pushes.append(event)
            else:
                self._answers[event.id] = event

    def begin(self, command: Command, body: bytes = b"") -> int:
        """Ask; return the id to ``end`` it with."""
        id_, frame = self.session.ask(command, body)
        self.send(frame)
        return id_

    def end(self, id_: int) -> bytes:
        """Return the body of an answer, or raise what refused it."""
        while id_ not in self._answers:
            self._receive()
        event = self._answers.pop(id_)
        if isinstance(event, Refusal):
            raise event.error
        return event.body

    def ask(self, command: Command, body: bytes = b"") -> bytes:
        """Ask, and wait for the answer."""
        return self.end(self.begin(command, body))

    @property
    def welcome(self) -> control.Welcome:
        """What the broker said first."""
        assert self.session.welcome is not None
        return self.session.welcome

    def reset(self) -> None:
        """Cut the connection as a network does: what was not read is lost."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    @property
    def cut(self) -> bool:
        """Whether the broker has closed the connection; reads nothing."""
        poll = select.poll()
        poll.register(self.socket, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(0))

    def last_words(self, seconds: float = DEADLINE) -> TernMQError | None:
        """Read until the broker closes; return the reason that it gave."""
        self.socket.settimeout(seconds)
        until = time.monotonic() + seconds
        error: TernMQError | None = None
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            while data := self.socket.recv(READ_BYTES):
                assert time.monotonic() < until, "the broker does not close"
                try:
                    events = self.session.receive(data)
                except (NotABroker, ProtocolError):
                    # An answer to what the session has not asked, or to what looked like HTTP.
                    continue
                for event in events:
                    if isinstance(event, Refusal):
                        error = event.error
        return error


def batch(topic: str, rows: Sequence[bytes], producer: int, first: int) -> bytes:
    """Return the body of a SEND of these bodies."""
    data = encode_bodies(
        rows,
        topic_seed=topic_seed(topic),
        producer_id=producer,
        first_sequence=first,
        born_us=time.time_ns() // 1000,
    )
    return bodies.pack_send(topic, None, data)


class Queue:
    """One topic with one queue and one group, through a peer: what tests of single rows need.

    Args:
        peer: Who asks.
        topic: Made if it is missing, with the group.
        group: See above.
    """

    def __init__(self, peer: Peer, topic: str = "steps", group: str = "walkers") -> None:
        self.peer = peer
        self.topic = topic
        self.group = group

    def make(self, lease_us: int) -> None:
        """Make the topic and the group."""
        spec = TopicSpec(name=self.topic)
        making = control.TopicCreate(topic=self.topic, spec=spec)
        self.peer.ask(Command.TOPIC_CREATE, control.encode(making))
        joining = control.GroupJoin(topic=self.topic, group=self.group)
        self.peer.ask(Command.GROUP_JOIN, control.encode(joining))
        changing = control.GroupChange(
            topic=self.topic, group=self.group, spec=SubscriptionSpec(lease_us=lease_us)
        )
        self.peer.ask(Command.GROUP_CHANGE, control.encode(changing))

    def send(self, rows: Sequence[bytes], first: int = 0) -> bodies.Receipt:
        """Send a batch."""
        body = batch(self.topic, rows, 7, first)
        return bodies.unpack_receipt(self.peer.ask(Command.SEND, body))

    def pull_body(self, most: int, wait_ms: int) -> bytes:
        """Return the body of a PULL."""
        return bodies.pack_pull(bodies.Pull(self.topic, self.group, None, most, 0, wait_ms))

    def pull(self, most: int, wait_ms: int = 0) -> bodies.Delivery:
        """Pull."""
        return bodies.unpack_delivery(self.peer.ask(Command.PULL, self.pull_body(most, wait_ms)))

    def settle(
        self,
        of: bodies.Delivery,
        offsets: Sequence[int] = (),
        outcome: Outcome = Outcome.DONE,
        *,
        reason: str = "",
    ) -> bodies.Settled:
        """Settle these rows of a delivery, or all of it."""
        spans = tuple((offset, offset + 1) for offset in offsets)
        settle = bodies.Settle(
            self.topic, self.group, of.queue, of.epoch, of.lease, int(outcome), spans, None, reason
        )
        return bodies.unpack_settled(self.peer.ask(Command.SETTLE, bodies.pack_settle(settle)))

    def read(self, offset: int) -> bodies.Rows:
        """Read from an offset on."""
        asked = bodies.Read(self.topic, 0, offset, 10_000, 0, 0)
        return bodies.unpack_rows(self.peer.ask(Command.READ, bodies.pack_read(asked)))


def offsets_of(delivery: bodies.Delivery) -> list[int]:
    """Return the offsets that came, in their order."""
    return [offset for run in delivery.runs for offset in range(run.start, run.start + run.rows)]
