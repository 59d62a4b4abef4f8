"""The port between doors and commands: who sends a command, and how it is answered.

A door speaks with clients in some protocol: the native connection is one, HTTP and foreign
protocols are others, and so is a test. For each client it brings a ``Caller``. The commands of the
broker know callers only as they are described here, so a new door changes no command.

Not thread-safe: everything here is called from the broker's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol

from ternmq.model.errors import TernMQError
from ternmq.model.marks import Rests
from ternmq.wire.control import Hello, Welcome
from ternmq.wire.session import Request


class Caller(Protocol):
    """A client, as the commands see it.

    Attributes:
        app: The app that it was authenticated as; empty before HELLO.
        address: Its network address, for logs and lists.
        language: The language of its library; empty: unknown.
        session: The number of its session; 0: it has none.
        topics: The topics that it used last, for lists.
        waiting: The ids of its requests that wait for messages.
        closed: It is gone: answers to it are dropped.
    """

    app: str
    address: str
    language: str
    session: int
    topics: dict[str, None]
    waiting: set[int]
    closed: bool

    @property
    def share(self) -> Hashable:
        """The share of work that it belongs to: callers of one app take turns within one."""
        ...

    def enter(self, app: str) -> None:
        """Take a place among the callers of an app, when it has been authenticated.

        Raises:
            Busy: The app has as many callers as it may have.
        """
        ...

    # -- answers ----------------------------------------------------------------------------------

    def answer(
        self, request: Request, body: bytes, position: int = 0, rests: Rests = Rests.DURABLE
    ) -> None:
        """Answer a request when the mark ``rests`` has passed ``position`` (0: at once)."""
        ...

    def refuse(self, request: Request, error: TernMQError, position: int = 0) -> None:
        """Answer a request with an error, when the durable mark has passed ``position``."""
        ...

    def push(self, command: int, body: bytes) -> None:
        """Send something that was not requested."""
        ...

    # -- room -------------------------------------------------------------------------------------

    @property
    def roomy(self) -> bool:
        """Whether there is room for another answer."""
        ...

    @property
    def writable(self) -> bool:
        """Whether it takes answers now; false while its socket is full."""
        ...

    def expect(self, size: int) -> None:
        """Count the bytes of an answer that is being made; a negative number takes them back."""
        ...

    def put_back(self, request: Request) -> None:
        """Take a request back; it is carried out again when there is room for its answer."""
        ...

    # -- requests that wait -----------------------------------------------------------------------

    def park(self, request: Request) -> None:
        """Count a request as one that waits: it takes none of the room for requests."""
        ...

    def unpark(self, request: Request) -> None:
        """Count a request as one that is carried out again, or answered."""
        ...

    def block(self) -> None:
        """Carry out nothing that was requested behind the request at hand, until ``unblock``."""
        ...

    def unblock(self) -> None:
        """End ``block``; ``go_on`` or ``go_on_later`` follows."""
        ...

    def go_on(self) -> None:
        """Carry out what was held up behind a request."""
        ...

    def go_on_later(self) -> None:
        """Carry it out in the next turn, when it is the turn of its share."""
        ...

    # -- the rest ---------------------------------------------------------------------------------

    def uses(self, topic: str) -> None:
        """Note a topic that is not among ``topics``."""
        ...

    def abandon(self, why: str) -> None:
        """Close without a word; ``why`` is for the log."""
        ...


Handler = Callable[[Caller, Request], None]
"""Carries a request out and answers it, at once or later.

Raises a RefusedError that becomes the answer; whatever else is raised is handled by the
dispatcher, see there.
"""


class Joined(NamedTuple):
    """The session that a HELLO led to.

    Attributes:
        session: Its number.
        position: The position of its record; the answer leaves when that is durable.
        resumed: The client came back to a session that it had before.
    """

    session: int
    position: int
    resumed: bool


class Commands(Protocol):
    """What a door can have done."""

    def greet(self, caller: Caller, hello: Hello) -> Joined:
        """Authenticate a client and give it a session; the caller's ``app`` is set.

        Raises:
            TernMQError: HELLO is refused.
        """
        ...

    def welcome(self, joined: Joined) -> Welcome:
        """Return the answer to HELLO."""
        ...

    def run(self, caller: Caller, request: Request) -> None:
        """Carry a request out; every error becomes its answer, or ends the broker."""
        ...

    def gone(self, caller: Caller) -> None:
        """Forget a client that is gone: nothing waits for it any more."""
        ...

    def withdraw(self, caller: Caller) -> list[Request]:
        """Return the requests of a caller that wait; they wait no longer, and can be run again."""
        ...

    def end_all(self, caller: Caller) -> None:
        """Answer all requests of a caller that wait, as if their time was over."""
        ...
