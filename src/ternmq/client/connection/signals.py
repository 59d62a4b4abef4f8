"""SIGTERM, SIGINT and SIGHUP of a run: the first stops it, a second ends it at once.

If SIGTERM already has a handler in this process, such as that of a web server whose lifespan the
run is part of, the run leaves all signals to it: without them, that program would not end. Then
``stop()`` ends the run.

SIGHUP reports that the terminal was closed. It often comes twice, from the shell and from the
kernel, so a second one is ignored; and one that is ignored, as by ``nohup``, stays so.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final, Self

from ternmq.client.content.validation import flag
from ternmq.client.process import exiting
from ternmq.client.process.forking import in_child

log: Final = logging.getLogger("ternmq")

_NUMBERS: Final = (signal.SIGTERM, signal.SIGINT)
_HANGUP: Final = getattr(signal, "SIGHUP", None)


class Signals:
    """A context in which the signals are taken; outside of the main thread it does nothing.

    Leaving it restores the previous handlers. After a second signal the previous handler gets that
    signal too, so that the process ends as it would without a run (KeyboardInterrupt, or SIGTERM).

    Args:
        post: Calls a function in the client's loop. It is called in a signal handler.
        stop: Stops the run; with ``True``, at once. Called in the loop.
        wanted: Whether to take them; None: unless SIGTERM already has a handler.
    """

    def __init__(
        self,
        post: Callable[[Callable[[], object]], object],
        stop: Callable[[bool], object],
        *,
        wanted: bool | None = True,
    ) -> None:
        if wanted is not None:
            flag("signals", wanted)
        self._wanted = wanted
        self._post = post
        self._stop = stop
        self._before: dict[int, Any] = {}
        self._count = 0
        self._heard = 0
        self._second: int | None = None
        self._forget: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread() and self._meant():
            for number in _NUMBERS:
                self._before[number] = signal.signal(number, self._came)
            if _HANGUP is not None and signal.getsignal(_HANGUP) != signal.SIG_IGN:
                self._before[_HANGUP] = signal.signal(_HANGUP, self._came)
            # A signal to a child that a handler forks must end that child, not reach the run.
            self._forget = in_child(self._put_back)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._forget()
        self._put_back()
        if self._second is not None:
            if signal.getsignal(self._second) == signal.SIG_DFL:
                exiting.tell()  # the process ends by the signal, without ``atexit``
            signal.raise_signal(self._second)

    def _meant(self) -> bool:
        """Return whether to take the signals; log the handler that keeps them."""
        if self._wanted is not None:
            return self._wanted
        handler = signal.getsignal(signal.SIGTERM)
        if not callable(handler) or isinstance(getattr(handler, "__self__", None), Signals):
            return True  # numbers: SIG_DFL and SIG_IGN; Signals: another run of this process
        log.info(
            "SIGTERM is handled by %s, so run() does not handle signals, and ends when stop() is "
            "called; run(signals=True) handles them", _named(handler),
        )  # fmt: skip
        return False

    def _put_back(self) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) == self._came:
                signal.signal(number, signal.SIG_DFL if before is None else before)

    def _came(self, number: int, frame: FrameType | None) -> None:
        if number == _HANGUP and self._count:
            return
        self._count += 1
        if self._count > 2 or (self._count == 2 and not self._heard):
            # Twice, and the loop has not run: a handler blocks it.
            self._second = None
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)
            signal.raise_signal(number)
            return
        at_once = self._count == 2
        if at_once:
            self._second = number
        self._post(lambda: self._hear(at_once=at_once))

    def _hear(self, *, at_once: bool) -> None:
        self._heard += 1
        self._stop(at_once)


def _named(handler: object) -> str:
    """Return a handler's name, with its module."""
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    return f"{getattr(handler, '__module__', None) or type(handler).__module__}.{name}"
