"""Extends leases, on a thread and a connection of its own.

The thread exists so that a blocked loop (a long computation, a slow call that does not await) does
not lose what it holds. It begins with the first lease. A lease is extended when a third of its time
is left, until ``max_processing_time`` has passed; then it ends by itself, and the messages are
delivered again. While a handler runs on one of its messages it is extended all the same: no other
consumer may get that message before the handler ends.

A client that is closed while handlers still run leaves them to the keeper: it extends their leases
on its own connection, which keeps the session, settles each message as its handler ends, and leaves
when there are no more. If the process ends first, it has their messages tried again: ``exiting``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ternmq.client.connection.address import Address
from ternmq.client.connection.blocking import BlockingConnection
from ternmq.client.connection.raising import own
from ternmq.client.connection.session import Session
from ternmq.client.connection.stats import Traffic
from ternmq.client.connection.trying import connect_to_first
from ternmq.client.consumer.concluding import MAX_REASON, Retry, delay_us, verdict_of
from ternmq.client.consumer.lease import Lease
from ternmq.client.consumer.running import Running
from ternmq.client.consumer.settler import Settler
from ternmq.client.consumer.settles import extended, extension
from ternmq.client.consumer.telling import dead_fate_of, fate_of
from ternmq.client.process import exiting
from ternmq.model.errors import (
    ConnectionLost,
    LeaseExpired,
    NotPrimary,
    RefusedError,
    TernMQError,
    UnknownGroup,
    UnknownTopic,
)
from ternmq.record.fact.facts import Outcome
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from ternmq.wire.session import Refusal

log: Final = logging.getLogger("ternmq")

_SHARE: Final = 1 / 3
"""Fraction of its duration that a lease has left when it is extended."""
_LAST_LOOK: Final = 0.1
"""Seconds before the end of a lease without extension at which it is checked once more: a handler
may have begun since."""
_LEAST_GAIN: Final = 0.01
"""Seconds by which an extension must lengthen a lease; with less, the next would be due at once."""
_LONGEST_NAP: Final = 1.0
_SHORTEST_NAP: Final = 0.005
_PAUSE: Final = 0.2
ENDED: Final = "the worker stopped while the handler ran"
"""Reason of an attempt that was cut short by the end of its process."""
_SETTLED: Final = {
    Outcome.DONE: "its message is acked",
    Outcome.RELEASED: "its message is given back",
}
"""The fate of a message whose handler outlived its client, for the log."""
_ENDED_LATE: Final = "ended after its client was closed"


class _Settle(NamedTuple):
    """The settle of a handler's message."""

    body: bytes
    fate: str
    """What becomes of the message if the broker accepts it, for the log."""
    until: float
    """Monotonic time at which its lease ends."""


def _settle_of(run: Running) -> _Settle:
    held = run.ended()
    lease = held.lease
    outcome, delay, reason = (
        (Outcome.DONE, None, "") if run.error is None else verdict_of(run.error)
    )
    if outcome is Outcome.RETRY:
        fate = fate_of(lease, held.attempt)
    else:
        fate = dead_fate_of(lease) if outcome is Outcome.DEAD else _SETTLED[outcome]
    settle = bodies.Settle(
        lease.topic,
        lease.group,
        lease.queue,
        lease.epoch,
        lease.number,
        outcome,
        ((held.offset, held.offset + 1),),
        delay_us(delay),
        reason[:MAX_REASON],
    )
    return _Settle(bodies.pack_settle(settle), fate, lease.until)


class Keeper:
    """Extends the leases of a client. Call ``start`` and ``stop`` from the client's loop.

    Args:
        session: The session of the leases.
        settler: Knows the leases.

    Attributes:
        traffic: Counts the traffic of its connections.
    """

    def __init__(self, session: Session, settler: Settler) -> None:
        self._session = session
        self._settler = settler
        self._thread: threading.Thread | None = None
        self._ended = False
        self._wake = threading.Event()
        self._looks_at = float("inf")
        self._line: BlockingConnection | None = None
        self._at: Address | None = None
        """Address of its last connection."""
        self._seen = 0
        """Number of the session's connections when it was made."""
        self._stepped_down = False
        """Whether the broker there was no longer the primary."""
        self._heartbeat = 1.0
        """Seconds without a request after which the connection needs one."""
        self._left: list[Running] = []
        self._exiting = False
        self._told: set[Running] = set()
        """Those whose fate is in the log, though their settle is not answered yet."""
        self._overdue: weakref.WeakSet[Lease] = weakref.WeakSet()
        self._over = asyncio.Event()
        """Set when the thread has ended. Only for the client's loop."""
        self.traffic = Traffic()
        settler.on_lease = self._began

    @property
    def connected(self) -> bool:
        """Whether it has a connection now. Callable from any thread."""
        return self._line is not None

    async def stop(self, timeout: float, left: Sequence[Running] = ()) -> None:
        """Stop the thread.

        This uses no thread of the loop's executor: an application may have them all in use.

        Args:
            timeout: Seconds to wait for the thread, which may wait for an answer itself.
            left: Handlers that still run: the thread continues until they have ended.
        """
        self._left = list(left)
        self._ended = True
        self._wake.set()
        thread = self._thread
        if thread is None:
            return
        if left:
            exiting.before_exit(self)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._over.wait()
                thread.join()

    def end_with_process(self) -> None:
        """Have the messages of running handlers tried again, and leave; for ``exiting``."""
        self._exiting = True
        self._wake.set()

    def wait(self, timeout: float) -> None:
        """Wait for the end of the thread; for ``exiting``."""
        if self._thread is not None:
            self._thread.join(timeout)

    # -- the thread

    def _run(self) -> None:
        try:
            while not self._ended and not self._session.loop.is_closed():
                self._sleep(self._nap())
                self._beat()
                self._extend_due()
            if self._left:
                self._stay()
        finally:
            self._hang_up()
            exiting.forget(self)
            with suppress(RuntimeError):  # the loop is closed: no caller waits
                self._session.loop.call_soon_threadsafe(self._over.set)

    def _stay(self) -> None:
        """After the client's close: extend the leases of running handlers, and settle for them."""
        self._wake.clear()
        self._say(Command.PING, b"")  # the session lives as long as it has a connection
        loop = self._session.loop
        cut: dict[Running, str] = {}
        while True:
            if loop.is_closed():
                for run in self._left:
                    if run.handler.is_async and not run.over:
                        run.error = asyncio.CancelledError()
                        run.ended()
                        cut[run] = "still ran when its event loop was closed"
            last = self._exiting
            if last:
                for run in self._left:
                    if not (run.over or run.returned):
                        run.error = Retry(ENDED)
                        run.ended()
                        cut[run] = "still ran when its process ended"
            # A stopped loop, closed or not, runs no callbacks of returned threads.
            runs = loop.is_running()
            ended = [one for one in self._left if one.over or (one.returned and not runs)]
            self._settle([(run, cut.get(run, _ENDED_LATE)) for run in ended], last=last)
            if not self._left:
                break  # without a nap: the process may wait for this thread
            self._sleep(self._nap())
            self._beat()
            self._extend_due()
        if self._exiting:
            self._leave_unheard()
        else:
            self._say(Command.BYE, b"")

    def _say(self, command: Command, body: bytes) -> None:
        try:
            self._ask(command, body)
        except (TernMQError, OSError) as error:
            log.debug("the keeper's connection is lost: %s", str(error))
            self._hang_up()

    def _leave_unheard(self) -> None:
        """Say BYE without waiting for the answer: the messages are another consumer's by now."""
        line = self._line
        if line is not None:
            with suppress(TernMQError, OSError):
                line.send(Command.BYE, b"", _PAUSE)

    def _settle(self, ended: Sequence[tuple[Running, str]], *, last: bool) -> None:
        """Settle messages of handlers that were left to the keeper; those settled leave ``_left``.

        All requests are sent before the first answer is awaited.

        Args:
            ended: Calls of handlers, each with how it ended, or that it did not, for the log.
            last: Whether the process ends: then the log is written before, because another
                consumer may have the messages afterwards.
        """
        if not ended:
            return
        settles = [_settle_of(run) for run, _ in ended]
        if last:
            for (run, end), one in zip(ended, settles, strict=True):
                if run not in self._told:  # once: a settle may need several tries
                    self._told.add(run)
                    log.warning("%s %s: %s", run, end, one.fate)
        try:
            answers: list[bytes | TernMQError | OSError] = [
                *self._ask_each(Command.SETTLE, [one.body for one in settles])
            ]
        except (TernMQError, OSError) as error:
            self._hang_up()
            answers = [error for _ in settles]
        failed = False
        for (run, end), one, answer in zip(ended, settles, answers, strict=True):
            said = one.fate
            if not isinstance(answer, bytes):
                known = isinstance(answer, RefusedError) and not answer.refresh_routes
                if not known and time.monotonic() < one.until:
                    failed = True
                    continue
                said = f"not settled: {answer}"
            elif bodies.unpack_settled(answer).refused:
                said = "too late: its message is delivered again"
            self._left.remove(run)
            if said != one.fate or run not in self._told:
                log.warning("%s %s: %s", run, end, said)
        if failed:
            self._sleep(_PAUSE)

    def _sleep(self, seconds: float) -> None:
        if self._exiting:  # the process waits for this thread: only a failed settle has a pause
            time.sleep(min(seconds, _SHORTEST_NAP))
            return
        self._looks_at = time.monotonic() + seconds
        self._wake.wait(seconds)
        if not self._ended or self._left:
            self._wake.clear()

    def _began(self, lease: Lease) -> None:
        """Start the thread, or wake it for a short lease. Call it from the client's loop."""
        if self._thread is None and not self._ended:
            self._thread = threading.Thread(target=self._run, name="ternmq-keeper", daemon=True)
            self._thread.start()
        elif self._due(lease) < self._looks_at:
            self._wake.set()

    def _nap(self) -> float:
        """Return the seconds until something is due."""
        now = time.monotonic()
        naps = [self._due(lease) - now for lease in self._settler.held() if not lease.over]
        return min(_LONGEST_NAP, max(_SHORTEST_NAP, min(naps, default=_LONGEST_NAP)))

    def _due(self, lease: Lease) -> float:
        """Return the time from which a lease needs attention. Callable from any thread."""
        ahead = lease.duration * _SHARE
        if not (lease.running or self._may_grow(lease)):
            ahead = min(ahead, _LAST_LOOK)
        return lease.until - ahead

    def _may_grow(self, lease: Lease) -> bool:
        """Return whether ``max_processing_time`` allows a longer lease."""
        longest = self._session.options.max_processing_time
        return lease.began + longest - lease.until >= _LEAST_GAIN

    def _extend_due(self) -> None:
        now = time.monotonic()
        longest = self._session.options.max_processing_time
        for lease in self._settler.held():
            if lease.over or self._due(lease) > now:
                continue
            left = lease.began + longest - now
            seconds = min(lease.duration, left) if self._may_grow(lease) else 0.0
            if lease.running:
                if left <= 0 and lease not in self._overdue:
                    self._overdue.add(lease)
                    log.warning(
                        "a handler has worked on a message of topic=%s group=%s for more than %g s "
                        "(max_processing_time): no other consumer gets it before the handler ends",
                        lease.topic, lease.group, longest,
                    )  # fmt: skip
                    self._tell(self._settler.overdue, lease)
                seconds = lease.duration
            if seconds > 0:
                if not self._extend(lease, seconds):
                    return
            elif now >= lease.until:
                self._tell(self._settler.lose, lease)

    def _extend(self, lease: Lease, seconds: float) -> bool:
        """Extend a lease; return False if there is no connection for it now."""
        try:
            asked = time.monotonic()
            extended(lease, self._ask(Command.EXTEND, extension(lease, seconds)), asked)
        except (LeaseExpired, UnknownGroup, UnknownTopic):
            self._tell(self._settler.lose, lease)
        except RefusedError as error:
            log.log(
                logging.DEBUG if error.refresh_routes else logging.WARNING,
                "a lease of %s cannot be extended now: %s", lease.topic, str(error),
            )  # fmt: skip
            self._hang_up()
            self._sleep(_PAUSE)
            return False
        except (TernMQError, OSError) as error:
            log.debug("the keeper's connection is lost: %s", str(error))
            self._hang_up()
            self._sleep(_PAUSE)
            return False
        return True

    def _ask(self, command: Command, body: bytes) -> bytes:
        """Return the answer to a request.

        Raises:
            OSError, TernMQError: There is no answer, or it is a refusal.
        """
        (answer,) = self._ask_each(command, [body])
        if isinstance(answer, bytes):
            return answer
        raise own(answer)

    def _ask_each(self, command: Command, each: Sequence[bytes]) -> list[bytes | TernMQError]:
        """Return the answers to requests that are sent together, each with its own refusal.

        Raises:
            OSError, TernMQError: There are no answers, or only to some.
        """
        self._follow()
        line = self._line
        if line is not None:
            try:
                return self._exchange(line, command, each)
            except (OSError, ConnectionLost):
                self._hang_up()  # it was silent for long; a new connection may work
        return self._exchange(self._connect(), command, each)

    def _follow(self) -> None:
        """Drop the connection if the session has gone to another broker since it was made."""
        session = self._session
        if self._line is not None and self._seen != session.traffic.opened:
            self._seen = session.traffic.opened
            if self._at != session.address:
                self._hang_up()

    def _exchange(
        self, line: BlockingConnection, command: Command, each: Sequence[bytes]
    ) -> list[bytes | TernMQError]:
        timeout = self._session.options.connect_timeout
        asked = [line.send(command, body, timeout) for body in each]
        answers: list[bytes | TernMQError] = []
        for id_ in asked:
            answer = line.receive(id_, timeout)
            if isinstance(answer, Refusal):
                if not answer.id:  # of the connection
                    raise own(answer.error)
                answers.append(answer.error)
            else:
                answers.append(answer.body)
        if any(isinstance(one, NotPrimary) for one in answers):
            self._stepped_down = True
            self._hang_up()
        return answers

    def _connect(self) -> BlockingConnection:
        """Make a second connection of the session: to its broker, or to the one that serves now.

        The loop may be blocked, and so the session at a broker that is gone.
        """
        session, options = self._session, self._session.options
        hello = control.Hello(
            app=options.app,
            token=options.token,
            client=session.client,
            session=session.number,
            auxiliary=True,
            library=session.library,
            language=session.language,
            pid=os.getpid(),
            routes=True,
        )
        self._seen = session.traffic.opened
        addresses = session.in_order()
        if self._stepped_down:
            addresses = sorted(addresses, key=lambda one: one == self._at)  # that one last
            self._stepped_down = False
        timeout = options.connect_timeout
        line, welcome, self._at = connect_to_first(
            addresses, self.traffic, hello, timeout, timeout, session.known
        )
        self._heartbeat = welcome.heartbeat_us / 1e6
        self._line = line
        return line

    def _beat(self) -> None:
        """Send a PING if it is due, so that the broker keeps the connection."""
        self._follow()
        line = self._line
        if line is not None and time.monotonic() - line.said > self._heartbeat:
            try:
                self._exchange(line, Command.PING, [b""])
            except (TernMQError, OSError):
                self._hang_up()

    def _tell(self, what: Callable[[Lease], None], lease: Lease) -> None:
        """Call a method of the settler for a lease in the client's loop, which may be blocked."""
        if what == self._settler.lose:
            lease.end()
        if self._left:
            lease.lost = lease.over
            return
        with suppress(RuntimeError):  # the loop is closed: the lease has no holder
            self._session.loop.call_soon_threadsafe(what, lease)

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()
