"""Live views: a screen that is redrawn, keys, and the clock of both."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from ternmq.cli.terminal import output
from ternmq.cli.terminal.page import Size
from ternmq.cli.terminal.problems import text_of
from ternmq.model.errors import CannotConnect, ConnectionLost, NotPrimary

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

T = TypeVar("T")

KEYS: Final = "q quits"
"""The key that ends ``watch``, for the last line."""
TURN: Final = ", space shows the next page"
"""The key of ``watch`` that turns the page, after ``KEYS`` if there is another page."""


async def every(seconds: float | None) -> AsyncIterator[int]:
    """Count at regular intervals; None: only once."""
    loop = asyncio.get_running_loop()
    turn, due = 0, loop.time()
    while True:
        yield turn
        if seconds is None:
            return
        turn += 1
        due = max(due + seconds, loop.time())
        await asyncio.sleep(due - loop.time())


@dataclass(slots=True, frozen=True)
class Seen(Generic[T]):
    """The content of one redraw.

    Attributes:
        view: The newest known figures.
        age_s: Their age; 0 while the broker answers.
        why: Why there are no newer ones; empty while the broker answers.
    """

    view: T
    age_s: float
    why: str

    @property
    def below(self) -> str:
        """The line that marks figures as old; empty while the broker answers."""
        if not self.why:
            return ""
        return f"these figures are {output.span(round(self.age_s, 1))} old: {self.why}"


async def looks(look: Callable[[], Awaitable[T]], seconds: float) -> AsyncGenerator[Seen[T], None]:
    """Call ``look`` repeatedly; yield its newest result at each interval, also without an answer.

    Raises:
        TernMQError: The first call failed, or a later one for another reason than a lost or refused
            connection.
    """
    loop = asyncio.get_running_loop()
    seen: Seen[T] | None = None
    answered = loop.time()
    why = ""
    asked: asyncio.Future[T] | None = None
    try:
        async for _ in every(seconds):
            if asked is None:
                asked = asyncio.ensure_future(look())
            await asyncio.wait({asked}, timeout=None if seen is None else seconds)
            if not asked.done():
                why = why or "the broker does not answer"
            else:
                try:
                    view, answered, why = asked.result(), loop.time(), ""
                except (CannotConnect, ConnectionLost, NotPrimary) as error:
                    if seen is None:
                        raise
                    why = text_of(error)
                else:
                    seen = Seen(view, 0.0, "")
                asked = None
            assert seen is not None
            yield Seen(seen.view, loop.time() - answered if why else 0.0, why)
    finally:
        if asked is not None:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)


class Screen:
    """A part of the terminal that is redrawn; inactive without a terminal.

    Args:
        wanted: Whether it is used.
        whole: Use the whole terminal, and restore it at the end.
    """

    def __init__(self, wanted: bool, *, whole: bool = False) -> None:
        self.on = wanted and output.is_terminal()
        self._whole = whole
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.on:
            from rich.live import Live

            self._live = Live(
                console=output.console(),
                auto_refresh=False,
                screen=self._whole,
                vertical_overflow="crop",
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def draw(self, what: RenderableType) -> None:
        """Draw anything."""
        assert self._live is not None
        self._live.update(what, refresh=True)

    @property
    def size(self) -> Size:
        """Present columns and lines of the terminal."""
        assert self._live is not None
        return Size(*self._live.console.size)


async def watch(
    look: Callable[[], Awaitable[T]],
    seconds: float,
    draw: Callable[[Seen[T], int], None],
    count: int | None = None,
) -> None:
    """Draw what ``look`` finds until q is pressed, or ``count`` times; space turns the page.

    While the broker is away, it waits for it, and the figures are marked as old.

    Args:
        look: Asks for the figures.
        seconds: Interval.
        draw: Draws them; its second argument is the number of times that the page was turned.
        count: Number of updates; None: no limit.
    """
    stop = asyncio.Event()
    turned = 0
    last: Seen[T] | None = None

    def pressed(key: str) -> None:
        nonlocal turned
        if "q" in key.lower():
            stop.set()
        elif " " in key:
            turned += 1
            if last is not None:
                draw(last, turned)

    async def drawn() -> None:
        nonlocal last
        left = count
        async with contextlib.aclosing(looks(look, seconds)) as seen:
            async for one in seen:
                last = one
                draw(one, turned)
                if left is not None and (left := left - 1) <= 0:
                    return

    with keys(pressed):
        told = asyncio.ensure_future(stop.wait())
        drawing = asyncio.ensure_future(drawn())
        try:
            await asyncio.wait({told, drawing}, return_when=asyncio.FIRST_COMPLETED)
            if drawing.done():
                drawing.result()
        finally:
            told.cancel()
            drawing.cancel()
            await asyncio.gather(told, drawing, return_exceptions=True)


@contextlib.contextmanager
def keys(pressed: Callable[[str], None]) -> Iterator[None]:
    """Call ``pressed`` for each key, if standard input is a terminal; Ctrl-C stays a signal."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()
    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, lambda: pressed(os.read(descriptor, 32).decode(errors="replace")))
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
