"""Brokers of a broker group, of which one leads: fronts before one broker, which has the journal.

A front that leads passes requests on. One that does not refuses HELLO and every request with
``NotPrimary``, and answers nothing that it had passed on before: that is what a client sees of a
broker that has stepped down. Beside them: an address that accepts and says nothing, and one that
refuses connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Self

from ternmq.model.errors import NotPrimary, TernMQError
from ternmq.testing import InProcessBroker
from ternmq.wire import control, frames
from ternmq.wire.commands import Command
from ternmq.wire.frames import ANSWER, ONE_WAY, PUSH, FrameReader
from ternmq.wire.session import Request, ServerSession, State, refusal

_MOST_BYTES = 1 << 26
_WELCOME = control.Welcome(
    version=1, broker="", session=1, resumed=False, epoch=1, now_us=0, heartbeat_us=1,
    frame_bytes=1, body_bytes=1, pull_messages=1, pull_bytes=1, send_timeout_us=1,
)  # fmt: skip


class Front:
    """One address, on a thread of its own. Callable from any thread.

    Args:
        port: Of the broker behind it.
        leads: Whether it passes requests on.

    Attributes:
        refuse: Errors for requests, by command, each for one request; HELLO among them.
        greets: Whether it accepts HELLO though it does not lead.
        seen: Requests that came, HELLOs among them.
        passed: Requests that were passed on.
    """

    def __init__(self, port: int, *, leads: bool = False) -> None:
        self._upstream = port
        self._leads = leads
        self.refuse: dict[Command, list[TernMQError]] = {}
        self.greets = False
        self.seen: Counter[Command] = Counter()
        self.passed: Counter[Command] = Counter()
        self._loop = asyncio.new_event_loop()
        self._lines: set[_Line] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._began.wait(10)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @property
    def place(self) -> str:
        """Its ``host:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Its url."""
        return f"ternmq://{self.place}"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = server.sockets[0].getsockname()[1]
        self._began.set()
        self._loop.run_forever()
        server.close()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    def _do(self, what: Callable[[], None]) -> None:
        done = threading.Event()

        def work() -> None:
            what()
            done.set()

        self._loop.call_soon_threadsafe(work)
        assert done.wait(10)

    def lead(self) -> None:
        """Pass requests on from now on."""
        self._do(self._lead)

    def _lead(self) -> None:
        self._leads = True

    def step_down(self) -> None:
        """Refuse HELLO and all requests from now on; parked pulls are refused at once."""
        self._do(self._step_down)

    def _step_down(self) -> None:
        self._leads = False
        for line in self._lines:
            line.step_down()

    @property
    def connections(self) -> int:
        """Number of open connections to clients."""
        return len(self._lines)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        line = _Line(self, writer)
        self._lines.add(line)
        try:
            while data := await reader.read(1 << 16):
                await line.take(data)
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            line.end()
            self._lines.discard(line)
            self._tasks.discard(task)

    def wrong(self, command: Command) -> TernMQError | None:
        """Count a request; return why it is refused."""
        self.seen[command] += 1
        if self.refuse.get(command):
            return self.refuse[command].pop(0)
        if self._leads or (self.greets and command is Command.HELLO):
            return None
        return NotPrimary("this broker is a replica")

    @property
    def upstream(self) -> int:
        """Port of the broker behind it."""
        return self._upstream


class _Line:
    """A connection of a client, with that to the broker."""

    def __init__(self, front: Front, writer: asyncio.StreamWriter) -> None:
        self._front = front
        self._session = ServerSession(_MOST_BYTES)
        self._back: asyncio.StreamWriter | None = None
        self._pass: asyncio.Task[None] | None = None
        self._pulls: dict[int, None] = {}
        """Pulls without an answer."""
        self.writer = writer

    async def take(self, data: bytes) -> None:
        front, session = self._front, self._session
        requests = session.receive(data)
        if session.state is State.GREETED:
            error = front.wrong(Command.HELLO)
            if error is not None:
                self.writer.write(session.refuse(error))
                self.writer.close()
                return
            session.welcome(_WELCOME)  # that of the broker is passed on
            front.passed[Command.HELLO] += 1
            there, self._back = await asyncio.open_connection("127.0.0.1", front.upstream)
            self._pass = asyncio.ensure_future(self._answers(there))
            self._back.write(data)
            return
        for request in requests:
            assert isinstance(request, Request)
            error = front.wrong(request.command)
            if error is None:
                front.passed[request.command] += 1
                if request.command is Command.PULL:
                    self._pulls[request.id] = None
                assert self._back is not None
                flags = ONE_WAY if request.one_way else 0
                self._back.write(frames.pack(request.command, flags, request.id, request.body))
            elif not request.one_way:
                self.writer.write(refusal(request.command, request.id, error))

    async def _answers(self, there: asyncio.StreamReader) -> None:
        reader = FrameReader(_MOST_BYTES)
        try:
            while data := await there.read(1 << 16):
                for frame in reader.feed(data):
                    if frame.flags & ANSWER and not frame.flags & PUSH:
                        self._pulls.pop(frame.id, None)
                self.writer.write(data)
        except OSError:
            pass
        self.writer.transport.abort()

    def step_down(self) -> None:
        """Answer nothing more for the broker; refuse the parked pulls."""
        self.end(client=False)
        for id_ in self._pulls:
            self.writer.write(refusal(Command.PULL, id_, NotPrimary("it has stepped down")))
        self._pulls.clear()

    def end(self, *, client: bool = True) -> None:
        """End the connections."""
        if self._pass is not None:
            self._pass.cancel()
        if self._back is not None:
            self._back.transport.abort()
        if client:
            self.writer.transport.abort()


class Pair:
    """Two fronts before one broker; one of them leads. See ``pair``."""

    def __init__(self, one: Front, other: Front, more: str = "") -> None:
        self.fronts = [one, other]
        self.leader = one
        self._more = more

    @property
    def url(self) -> str:
        """A url of both, the first leader first; of dead addresses between them, if there are."""
        one, other = self.fronts
        return f"ternmq://{one.place}{self._more},{other.place}"

    def switch(self) -> None:
        """Have the other one lead."""
        before = self.leader
        self.leader = self.fronts[1 - self.fronts.index(before)]
        before.step_down()
        self.leader.lead()


@contextlib.contextmanager
def pair(real: InProcessBroker, *, dead: bool = True) -> Iterator[Pair]:
    """Run two fronts; with ``dead``, the url also names three addresses that never serve."""
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(Front(real.port, leads=True))
        other = stack.enter_context(Front(real.port))
        more = ""
        if dead:
            never = stack.enter_context(Front(real.port))
            hole = stack.enter_context(black_hole())
            more = f",{never.place},{hole},{stack.enter_context(refusing())}"
        yield Pair(one, other, more)


@contextlib.contextmanager
def black_hole() -> Iterator[str]:
    """Yield an address that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@contextlib.contextmanager
def refusing() -> Iterator[str]:
    """Yield an address that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait in this thread until a condition holds; fail after a deadline."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.002)
