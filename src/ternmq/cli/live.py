"""Views that change: a screen that is drawn anew, keys, and the beat in which it happens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ternmq.cli import output
from ternmq.cli.output import Cell

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table


async def every(seconds: float | None) -> AsyncIterator[int]:
    """Count at even distances; None: once."""
    loop = asyncio.get_running_loop()
    turn, due = 0, loop.time()
    while True:
        yield turn
        if seconds is None:
            return
        turn += 1
        due = max(due + seconds, loop.time())
        await asyncio.sleep(due - loop.time())


class Screen:
    """A part of the terminal that is drawn anew; nothing where there is no terminal.

    Args:
        wanted: Whether there is to be one.
        whole: Take the whole terminal, and give it back at the end.
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

    def show(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]], below: str) -> None:
        """Draw a table and a line below it."""
        from rich.console import Group
        from rich.text import Text

        self.draw(Group(self.table(columns, rows), Text(below, style="dim")))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
        """Return a table for this terminal."""
        assert self._live is not None
        return output.drawn(columns, rows, self._live.console)

    def draw(self, what: RenderableType) -> None:
        """Draw anything."""
        assert self._live is not None
        self._live.update(what, refresh=True)

    @property
    def height(self) -> int:
        """Lines that there are."""
        assert self._live is not None
        return self._live.console.height


@contextlib.contextmanager
def keys(pressed: Callable[[str], None]) -> Iterator[None]:
    """Tell of keys as they are pressed, where a terminal is asked; Ctrl-C stays what it is."""
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
