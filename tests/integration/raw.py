"""A blocking client of few words: the protocol over a plain socket, for tests of the server."""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Sequence
from typing import Self, TypeVar

import msgspec

from ternmq.model.errors import TernMQError
from ternmq.record.batch.batch import Batch, Compression, Row, encode, topic_seed
from ternmq.record.fact import messages
from ternmq.record.fact.facts import Outcome
from ternmq.wire import bodies, control
from ternmq.wire.bodies import Delivery, Receipt, Rows, Settled
from ternmq.wire.commands import Command
from ternmq.wire.session import Answer, ClientSession, Push, Refusal

T = TypeVar("T", bound=msgspec.Struct)

DEADLINE_S = 20.0


class Closed(Exception):
    """The broker closed the connection."""


class RawClient:
    """One connection; every question waits for its answer, unless asked with ``ask``."""

    def __init__(
        self,
        port: int,
        *,
        client: str | None = None,
        session: int = 0,
        auxiliary: bool = False,
        app: str = "",
        token: str = "",
        library: str = "",
        language: str = "",
        reads: bool = False,
    ) -> None:
        self.client = client or secrets.token_hex(16)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self.session = ClientSession()
        self.answers: dict[int, Answer | Refusal] = {}
        self.pushes: list[Push] = []
        self.farewell: TernMQError | None = None
        self.sequence = 0
        self.producer = secrets.randbits(63)
        hello = control.Hello(
            client=self.client,
            session=session,
            auxiliary=auxiliary,
            app=app,
            token=token,
            library=library,
            language=language,
            reads=True if reads else msgspec.UNSET,
        )
        try:
            self.socket.sendall(self.session.hello(hello))
            self._wait(1)
        except BaseException:
            self.socket.close()
            raise
        assert self.session.welcome is not None
        self.welcome = self.session.welcome

    @property
    def number(self) -> int:
        """The session."""
        return self.welcome.session

    # -- asking -----------------------------------------------------------------------------------

    def ask(self, command: Command, body: bytes = b"") -> int:
        """Ask something; return the id to wait for."""
        id_, frame = self.session.ask(command, body)
        self.socket.sendall(frame)
        return id_

    def _wait(self, id_: int) -> bytes:
        while id_ not in self.answers:
            self.receive()
        answer = self.answers.pop(id_)
        if isinstance(answer, Refusal):
            raise answer.error
        return answer.body

    def wait(self, id_: int) -> bytes:
        """Return the body of an answer."""
        return self._wait(id_)

    def receive(self) -> None:
        """Take what comes next."""
        data = self.socket.recv(1 << 20)
        if not data:
            if self.farewell is not None:
                raise self.farewell
            raise Closed
        for event in self.session.receive(data):
            if isinstance(event, Push):
                self.pushes.append(event)
            elif event.id == 0:
                assert isinstance(event, Refusal)
                self.farewell = event.error
            else:
                self.answers[event.id] = event

    def call(self, command: Command, body: bytes = b"") -> bytes:
        """Ask and wait."""
        return self._wait(self.ask(command, body))

    def manage(self, command: Command, asked: msgspec.Struct, kind: type[T]) -> T:
        """Ask with a control request."""
        return control.decode(self.call(command, control.encode(asked)), kind)

    # -- messages ---------------------------------------------------------------------------------

    def batch(
        self, topic: str, rows: Sequence[Row], compression: Compression = Compression.NONE
    ) -> bytes:
        """Return a batch with the next sequences."""
        data = encode(
            rows,
            topic_seed=topic_seed(topic),
            producer_id=self.producer,
            first_sequence=self.sequence,
            born_us=1,
            keyed=bool(rows[0].ordering_key),
            compression=compression,
        )
        self.sequence += len(rows)
        return data

    def send(self, topic: str, *texts: str, queue: int | None = None, **given: str) -> Receipt:
        """Send one batch of texts."""
        rows = [Row(text.encode(), **given) for text in texts]  # type: ignore[arg-type]
        body = bodies.pack_send(topic, queue, self.batch(topic, rows))
        return bodies.unpack_receipt(self.call(Command.SEND, body))

    def create(self, topic: str, **settings: object) -> None:
        """Make a topic."""
        from ternmq.model.specs import TopicSpec

        spec = msgspec.convert({"name": topic, **settings}, TopicSpec)
        self.manage(
            Command.TOPIC_CREATE, control.TopicCreate(topic=topic, spec=spec), control.Nothing
        )

    def join(self, topic: str, group: str, **stated: object) -> control.GroupJoined:
        """See that a group is there."""
        asked = msgspec.convert({"topic": topic, "group": group, **stated}, control.GroupJoin)
        return self.manage(Command.GROUP_JOIN, asked, control.GroupJoined)

    def ask_pull(
        self, topic: str, group: str, most: int = 100, wait_ms: int = 0, max_bytes: int = 0
    ) -> int:
        """Ask for messages; return the id."""
        pull = bodies.Pull(topic, group, None, most, max_bytes, wait_ms)
        return self.ask(Command.PULL, bodies.pack_pull(pull))

    def pull(self, topic: str, group: str, most: int = 100, wait_ms: int = 0) -> Delivery:
        """Pull."""
        return bodies.unpack_delivery(self._wait(self.ask_pull(topic, group, most, wait_ms)))

    def settle(
        self,
        topic: str,
        group: str,
        delivery: Delivery,
        outcome: Outcome = Outcome.DONE,
        spans: tuple[tuple[int, int], ...] = (),
        delay_us: int | None = None,
        reason: str = "",
    ) -> Settled:
        """Settle."""
        asked = bodies.Settle(
            topic, group, delivery.queue, delivery.epoch, delivery.lease, int(outcome), spans,
            delay_us, reason,
        )  # fmt: skip
        return bodies.unpack_settled(self.call(Command.SETTLE, bodies.pack_settle(asked)))

    def read(self, topic: str, offset: int, most: int = 100, wait_ms: int = 0) -> Rows:
        """Read without a group."""
        asked = bodies.Read(topic, 0, offset, most, 0, wait_ms)
        return bodies.unpack_rows(self.call(Command.READ, bodies.pack_read(asked)))

    def bye(self) -> None:
        """Leave."""
        self.call(Command.BYE)
        self.close()

    def close(self) -> None:
        """Drop the connection."""
        self.socket.close()

    def __del__(self) -> None:
        """Tests that leave a connection to the broker's end need not name it."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def records(data: bytes) -> list[messages.Messages]:
    """Return the MESSAGES records of an answer."""
    found: list[messages.Messages] = []
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 8)
        assert data[at + 13] == 6, "clients know one kind of record only"
        found.append(messages.of_record(data[at : at + length]))
        at += length
    assert at == len(data)
    return found


def texts(delivery: Delivery) -> dict[int, str]:
    """Return what was handed out: text by offset."""
    wanted = {offset for run in delivery.runs for offset in range(run.start, run.start + run.rows)}
    found: dict[int, str] = {}
    for record in records(delivery.records):
        bodies_of = Batch(record.batch).bodies()
        for row, body in enumerate(bodies_of):
            offset = record.offset_of(row)
            if offset in wanted:
                assert offset not in found, "a row came twice in one answer"
                found[offset] = body.decode()
    assert found.keys() == wanted
    return found
