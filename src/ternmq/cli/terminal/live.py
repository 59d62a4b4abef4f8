"""Live views: a screen that is redrawn, keys, and the clock of both."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from ternmq.cli.terminal import output
from ternmq.cli.terminal.output import Cell
from ternmq.cli.terminal.page import Page, Part, Size, lay_out
from ternmq.cli.terminal.problems import text_of
from ternmq.model.errors import CannotConnect, ConnectionLost

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

T = TypeVar("T")


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
                except (CannotConnect, ConnectionLost) as error:
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

    def show(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        below: str,
        stale: str,
        spare: Sequence[str] = (),
    ) -> None:
        """Draw a table and a line below it; ``stale`` is shown if the figures are old.

        ``spare`` are the columns to drop on a narrow terminal, in this order.
        """
        part = Part(columns, rows, spare)
        self.draw(lay_out(Page((), (part,), below, stale), self.size, fill=False))

    def draw(self, what: RenderableType) -> None:
        """Draw anything."""
        assert self._live is not None
        self._live.update(what, refresh=True)

    @property
    def size(self) -> Size:
        """Present columns and lines of the terminal."""
        assert self._live is not None
        return Size(*self._live.console.size)


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
