"""A broker that says what a test wants it to say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

import msgspec

from ternmq.model.errors import NotPrimary, TernMQError
from ternmq.model.specs import TopicSpec
from ternmq.record.batch.batch import Batch
from ternmq.wire import bodies, control, frames
from ternmq.wire.commands import Command
from ternmq.wire.session import Request, ServerSession, State, answer, refusal

Told = bytes | TernMQError | None


class FakeBroker:
    """Answers sends by itself; ``on`` has other things said. Loop only.

    Attributes:
        sends: Batches that came, in order, whatever they were answered.
        refuse: Errors that the next sends are answered with.
        silent: Sends are not answered.
        hellos: What came in the place of HELLO.
        routes: What it answers ROUTES with, and states to those whom it refuses; None: it is alone.
        welcomes: Fields of its WELCOME that differ.
        leads: Whether HELLO is accepted; else it is refused with ``refusal``.
    """

    def __init__(self, *, ordered: bool = False, queues: int = 1) -> None:
        self.hellos: list[control.Hello] = []
        self.routes: control.Routes | None = None
        self.welcomes: dict[str, Any] = {}
        self.leads = True
        self.refusal: TernMQError = NotPrimary("this broker follows")
        self.sends: list[Batch] = []
        self.raw: list[bytes] = []
        self.stored: list[bytes] = []
        self.refuse: list[TernMQError] = []
        self.silent = False
        self.on: dict[Command, Callable[[Request], Told]] = {}
        self.connections: list[asyncio.StreamWriter] = []
        self._ordered, self._queues = ordered, queues
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"ternmq://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """End every connection at once."""
        for writer in self.connections:
            writer.transport.abort()
        self.connections.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections.append(writer)
        session = ServerSession(1 << 24)
        try:
            while data := await reader.read(1 << 16):
                requests = session.receive(data)
                if session.state is State.GREETED:
                    assert session.hello is not None
                    self.hellos.append(session.hello)
                    if not self.leads:
                        writer.write(session.refuse(self.refusal, self.routes))
                        await writer.drain()
                        writer.close()
                        break
                    writer.write(session.welcome(self._welcome(session.hello)))
                for request in requests:
                    assert isinstance(request, Request)
                    told = self._handle(request)
                    if isinstance(told, TernMQError):
                        writer.write(refusal(request.command, request.id, told))
                    elif told is not None and not request.one_way:
                        writer.write(answer(request, told))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            if not writer.is_closing():
                writer.transport.abort()
            self._tasks.discard(task)

    def tell(self, request: Request, told: Told) -> None:
        """Answer a request that ``on`` left without an answer, on the newest connection."""
        if isinstance(told, bytes):
            self.connections[-1].write(answer(request, told))

    def push(self, command: Command, struct: msgspec.Struct) -> None:
        """Push something on every connection."""
        for writer in self.connections:
            writer.write(frames.pack(command, frames.PUSH, 0, control.encode(struct)))

    def _welcome(self, hello: control.Hello) -> control.Welcome:
        made = control.Welcome(
            version=1, broker="fake", session=hello.session or 1, resumed=bool(hello.session),
            epoch=1, now_us=0, heartbeat_us=60_000_000, frame_bytes=1 << 21, body_bytes=1 << 20,
            pull_messages=1000, pull_bytes=1 << 20, send_timeout_us=10_000_000,
        )  # fmt: skip
        return msgspec.structs.replace(made, **self.welcomes)

    def _handle(self, request: Request) -> Told:
        told = self.on.get(request.command)
        if told is not None:
            return told(request)
        if request.command is Command.SEND:
            return self._send(request)
        if request.command is Command.TOPIC_LIST:
            name = control.decode(request.body, control.TopicList).names
            assert name is not None
            spec = TopicSpec(name=name[0], ordered=self._ordered, queues=self._queues)
            queues = [control.QueueInfo(first=0, next=0)] * self._queues
            info = control.TopicInfo(number=1, spec=spec, queues=queues, groups=[])
            return control.encode(control.Topics(topics=[info]))
        if request.command is Command.ROUTES and self.routes is not None:
            return control.encode(self.routes)
        if request.command in {Command.BYE, Command.PING}:
            return b""
        return control.encode(control.Nothing())

    def _send(self, request: Request) -> Told:
        sent = bodies.unpack_send(request.body)
        batch = Batch(sent.batch)
        self.sends.append(batch)
        self.raw.append(sent.batch)
        if self.silent:
            return None
        if self.refuse:
            return self.refuse.pop(0)
        first = len(self.stored)
        self.stored += batch.bodies()
        return bodies.pack_receipt(
            bodies.Receipt(first, 1, 0, batch.count, duplicate=False, written=False, others=())
        )
