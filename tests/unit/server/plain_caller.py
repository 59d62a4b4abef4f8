"""A caller without a socket, as any door may bring one, and its door; see ``ternmq.wire.port``."""

from __future__ import annotations

from ternmq.model.errors import TernMQError
from ternmq.model.marks import Rests
from ternmq.server.desk.desk import Desk
from ternmq.server.engine.engine import Core
from ternmq.wire.commands import Command
from ternmq.wire.control import Hello
from ternmq.wire.session import Request


class _Answer:
    """Where one answer goes."""

    def __init__(self, caller: PlainCaller, request: Request) -> None:
        self.caller, self.request = caller, request

    def put(self, frame: bytes, settled_bytes: int) -> None:
        del settled_bytes
        self.caller.answers[self.request.id] = frame


class PlainCaller:
    """Keeps answers and refusals by request id."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.app = self.address = self.language = ""
        self.session = self.last = self.expected = self.parked = 0
        self.topics: dict[str, None] = {}
        self.waiting: set[int] = set()
        self.closed = self.blocked = False
        self.roomy = self.writable = True
        self.answers: dict[int, bytes] = {}
        self.refusals: dict[int, TernMQError] = {}
        self.pushes: list[int] = []
        self.back: list[Request] = []
        self.abandoned = ""

    # -- what a door does -------------------------------------------------------------------------

    def greet(self, app: str = "shop", **fields: object) -> None:
        hello = Hello(client="plain", app=app, token="", **fields)  # type: ignore[arg-type]
        self.session = self.desk.commands.greet(self, hello).session
        self.language = hello.language
        self.desk.core.touch()

    def ask(self, command: Command, body: bytes = b"") -> int:
        """Carry a request out; return its id."""
        self.last += 1
        self.desk.core.asked += 1
        self.desk.core.touch()
        self.desk.commands.run(self, Request(command, self.last, body, one_way=False))
        return self.last

    def leave(self) -> None:
        self.closed = True
        self.desk.commands.gone(self)

    # -- what commands see ------------------------------------------------------------------------

    @property
    def share(self) -> str:
        return self.app

    @property
    def core(self) -> Core:
        return self.desk.core

    def enter(self, app: str) -> None:
        pass

    def answer(
        self, request: Request, body: bytes, position: int = 0, rests: Rests = Rests.DURABLE
    ) -> None:
        if position:
            self.core.hold(_Answer(self, request), body, position, rests, 0)
        else:
            self.answers[request.id] = body

    def refuse(self, request: Request, error: TernMQError, position: int = 0) -> None:
        del position
        self.refusals[request.id] = error

    def push(self, command: int, body: bytes) -> None:
        del body
        self.pushes.append(command)

    def expect(self, size: int) -> None:
        self.expected += size

    def put_back(self, request: Request) -> None:
        self.back.append(request)

    def park(self, request: Request) -> None:
        self.parked += 1

    def unpark(self, request: Request) -> None:
        self.parked -= 1

    def block(self) -> None:
        self.blocked = True

    def unblock(self) -> None:
        self.blocked = False

    def go_on(self) -> None:
        pass

    def go_on_later(self) -> None:
        pass

    def uses(self, topic: str) -> None:
        self.topics[topic] = None

    def abandon(self, why: str) -> None:
        self.closed, self.abandoned = True, why


class PlainDoor:
    """A door that brings plain callers; see ``ternmq.server.desk.desk.Door``."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.callers: list[PlainCaller] = []
        self.steps: list[str] = []
        desk.doors.append(self)

    def come(self, app: str) -> PlainCaller:
        caller = PlainCaller(self.desk)
        caller.greet(app)
        self.callers.append(caller)
        return caller

    def flush(self) -> None:
        pass

    def write_out(self) -> None:
        pass

    def go_on(self) -> bool:
        return False

    @property
    def empty(self) -> bool:
        return all(caller.closed for caller in self.callers)

    def drain(self) -> None:
        self.steps.append("drain")
        for caller in self.callers:
            caller.push(Command.DRAIN, b"")

    def stop(self) -> None:
        self.steps.append("stop")

    def finish(self) -> None:
        self.steps.append("finish")
        for caller in self.callers:
            caller.leave()

    def abandon(self, why: str) -> None:
        self.steps.append(why)
        for caller in self.callers:
            caller.abandon(why)
