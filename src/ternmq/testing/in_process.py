"""The broker in a thread, for as long as a ``with`` block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

import numpy  # noqa: F401, ICN001 - not by a thread of the broker, in the middle of a test that forks

from ternmq.client.content.broker_time import moved_clocks
from ternmq.client.declaration.topic import Topic
from ternmq.client.process import pickling
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.port import Disk
from ternmq.model.errors import InvalidRequest
from ternmq.model.words import article
from ternmq.server.app import Server
from ternmq.server.engine.engine import Core
from ternmq.settings import Mode, load
from ternmq.testing import groups
from ternmq.testing.clock import ManualClock
from ternmq.testing.passage import Passage, end_runs, tell_of_leases

START_S: Final = 30.0
"""Most seconds that starting or stopping may take."""


class InProcessBroker(pickling.NotPickled):
    """A real broker that a test controls; a context manager.

    Args:
        clock: Its time; None: the machine's clocks.
        settings: Settings of the broker by name, such as ``{"create_topics": False}``.
        disk: Disk of its journal; None: in memory. A second broker on the same disk continues where
            the first ended.

    Attributes:
        clock: The clock; with the machine's clocks it cannot be advanced.
        disk: The disk.
    """

    _not_pickled = "a broker of the testing kit cannot be pickled or copied: pass its url"

    def __init__(
        self,
        *,
        clock: ManualClock | None,
        settings: Mapping[str, object] | None = None,
        disk: Disk | None = None,
    ) -> None:
        if disk is not None and not callable(getattr(disk, "lock", None)):
            kind = article(type(disk).__name__)
            raise InvalidRequest(f"disk is a MemoryDisk, a RealDisk or another disk, not {kind}")
        self.disk: Disk = disk if disk is not None else MemoryDisk()
        self._clock = clock
        if not isinstance(settings, Mapping | None):
            raise InvalidRequest(
                "settings are a mapping from names to values, such as {'create_topics': False}, "
                f"not of type {type(settings).__name__}"
            )
        self._settings = dict(settings or {})
        for name in self._settings:
            if not isinstance(name, str):
                raise InvalidRequest(
                    f"settings: the name of a setting is a str, and {name!r:.80} is "
                    f"{article(type(name).__name__)}"
                )
        if "data" in self._settings:
            raise InvalidRequest(
                "settings: 'data' cannot be set: this broker has no folder; disk=RealDisk(folder) "
                "gives it one"
            )
        self._loop: asyncio.AbstractEventLoop
        self._server: Server
        self._thread: threading.Thread | None = None
        self._began = threading.Event()
        self._error: BaseException | None = None
        self._end: asyncio.Event
        self._clean = True
        self._passage = Passage(clock or ManualClock())

    @property
    def clock(self) -> ManualClock:
        """The clock that the test moves.

        Raises:
            RuntimeError: The broker was made with the machine's clocks.
        """
        if self._clock is None:
            raise RuntimeError("this broker runs on the machine's clocks: broker(manual=True)")
        return self._clock

    @property
    def port(self) -> int:
        """The port that it listens on, on 127.0.0.1."""
        return self._server.port

    @property
    def http_port(self) -> int:
        """The port of /metrics and others; 0 if they are off, as by default."""
        return self._server.http_port

    @property
    def url(self) -> str:
        """The address to connect to."""
        return f"ternmq://127.0.0.1:{self.port}"

    # -- start and stop ---------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it; returns when it listens. After a stop: on its disk, at the same port.

        Raises:
            TernMQError: It cannot open its journal.
            TimeoutError: It did not start in time.
            RuntimeError: It runs already.
        """
        if self._thread is not None and self._thread.is_alive():
            raise RuntimeError("the broker runs already: stop() or restart() it")
        self._began.clear()
        self._error = None
        self._thread = threading.Thread(target=self._work, name="ternmq-broker", daemon=True)
        self._thread.start()
        if not self._began.wait(START_S):
            raise TimeoutError(f"the broker did not start within {START_S:.0f} s")
        try:
            self._raise()
        except BaseException:
            self._thread.join(START_S)
            self._thread = None  # there is nothing to stop
            raise
        return self

    def stop(self, *, clean: bool = True) -> None:
        """Stop it: cleanly, or (``clean=False``) as if it was killed: only its disk is kept.

        Raises:
            TimeoutError: It did not end in time.
        """
        thread = self._thread
        if thread is None:
            return
        self._clean = clean
        self._passage.ends(self._server)
        self._loop.call_soon_threadsafe(self._end.set)
        thread.join(START_S)
        if thread.is_alive():
            raise TimeoutError(f"the broker did not stop within {START_S:.0f} s")
        self._thread = None
        # Clients that were connected find it at the same port when it starts again.
        self._settings["listen"] = f"127.0.0.1:{self.port}"
        if self.http_port:
            self._settings["http"] = f"127.0.0.1:{self.http_port}"
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def restart(self, *, clean: bool = True) -> None:
        """Stop it and start it again on its disk, at the same port."""
        self.stop(clean=clean)
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        end_runs({self.port})
        self.stop()
        moved_clocks.pop(self.port, None)  # not earlier: its clients may wait for a restart

    def _work(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self._error = error
        finally:
            self._began.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        flags: dict[str, object] = {
            "listen": "127.0.0.1:0",
            "http": "off",
            "drain_timeout": "0s",
            **self._settings,
        }
        self._server = Server(
            load(environ={}, flags=flags, mode=Mode.TESTING), disk=self.disk, clocks=self._clock
        )
        await self._server.start()
        if self._clock is not None:
            self._clock.settle_with(self._advance)
            moved_clocks[self.port] = self._clock.monotonic_us
        else:
            moved_clocks.pop(self.port, None)
        self._began.set()
        await self._end.wait()
        if self._clean:
            await self._server.close()
        else:
            await self._server.abandon()

    # -- groups -----------------------------------------------------------------------------------

    def wait_idle(
        self, topic: str | Topic, group: str, *, timeout: float | timedelta = 10.0
    ) -> None:
        """Wait until a group has nothing to do: all sent messages were delivered and settled.

        It also waits for the group to exist: a starting worker creates it. It does not wait for
        failed messages that wait for a retry or are held, nor, on an ordered topic, for those
        behind them: use ``clock.advance`` for those. Do not call it in the client's own event loop:
        ``await asyncio.to_thread(broker.wait_idle, "orders", "g")``.

        Args:
            topic: The topic, by name or as declared.
            group: The group; ``$b.web-1`` for the broadcast instance ``web-1``.
            timeout: In the machine's time: seconds, or a timedelta.

        Raises:
            TimeoutError: It is not idle by then; the text has its state.
            RuntimeError: The broker does not run.
            InvalidName: A name is not valid.
            InvalidRequest: ``timeout`` is not a time.
        """
        self._wait(groups.wait_idle(self._core, topic, group, timeout))

    def wait_failed(
        self,
        topic: str | Topic,
        group: str,
        *,
        messages: int = 1,
        timeout: float | timedelta = 10.0,
    ) -> None:
        """Wait until a group has failed on this many messages.

        They wait for a retry, are held, or are dead letters. A message that is tried again at once
        (a policy with ``first=0``) counts when it is a dead letter. Do not call it in the client's
        own event loop, as ``wait_idle``.

        Args:
            topic: The topic, by name or as declared.
            group: The group.
            messages: Number of messages, at least.
            timeout: In the machine's time: seconds, or a timedelta.

        Raises:
            TimeoutError: There are fewer by then; the text has the group's state.
            RuntimeError: The broker does not run.
            InvalidName: A name is not valid.
            InvalidRequest: ``timeout`` is not a time, ``messages`` is not a number above 0, or the
                group is a broadcast instance, in which a failed message is done at once.
        """
        self._wait(groups.wait_failed(self._core, topic, group, messages, timeout))

    def _core(self) -> Core:
        return self._server.core

    def _wait(self, waiting: Coroutine[object, object, None]) -> None:
        """Wait for a coroutine in the broker's loop. Callable from any thread but the loop's."""
        if self._thread is None or not self._thread.is_alive():
            waiting.close()
            raise RuntimeError("the broker does not run in this process: it was stopped or forked")
        asyncio.run_coroutine_threadsafe(waiting, self._loop).result()

    # -- time -------------------------------------------------------------------------------------

    def _advance(self, target_us: int) -> None:
        """Move the clock, and run what comes due. Callable from any thread but the loop's."""
        if self._thread is None:
            while self.clock.step(target_us) is not None:
                pass
            return
        if not self._thread.is_alive():
            raise RuntimeError(
                "the broker does not run in this process: it was forked, or it ended"
            )
        asyncio.run_coroutine_threadsafe(self._move(target_us), self._loop).result()

    async def _move(self, target_us: int) -> None:
        await self._passage.begin(self._server)
        await self._passage.go(self._server, target_us)
        await tell_of_leases(self._server)


@contextmanager
def broker(
    *,
    manual: bool = True,
    settings: Mapping[str, object] | None = None,
    disk: Disk | None = None,
) -> Iterator[InProcessBroker]:
    """Run a real broker for the length of a ``with`` block.

    Args:
        manual: Whether time moves by ``clock.advance`` only; False: with the machine's clocks.
        settings: Settings of the broker by name.
        disk: Disk of its journal; None: in memory.

    Yields:
        The broker: ``url``, ``clock``, ``restart()``. At the end of the block, ``run`` of clients
        in this process that are connected to it ends, too.
    """
    one = InProcessBroker(clock=ManualClock() if manual else None, settings=settings, disk=disk)
    with one:
        yield one
