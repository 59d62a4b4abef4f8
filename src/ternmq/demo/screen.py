"""The output during a run: bars in a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
)
from rich.text import Text

_PLAIN_EVERY: Final = 5.0
"""Seconds between lines of progress without a terminal."""


def write(console: Console, text: str, style: str | None = None) -> None:
    """Write a line without markup; it is wrapped in a terminal only."""
    console.print(
        text, style=style, highlight=False, markup=False, soft_wrap=not console.is_terminal
    )


class Bar(NamedTuple):
    """The progress of something."""

    name: str
    done: int
    total: int
    note: str


class _Count(ProgressColumn):
    """A column "done/total"."""

    def render(self, task: Task) -> Text:
        total = int(task.total or 0)
        return Text(f"{int(task.completed):>{len(f'{total:,}')},}/{total:,}", justify="right")


class Screen:
    """Shows the progress of a run.

    Args:
        console: Where to write; bars are drawn if it is a terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = time.monotonic()
        self._shown = self._begun
        self._last: list[Bar] = []
        self._progress: Progress | None = None
        self._tasks: dict[str, int] = {}

    def say(self, text: str) -> None:
        """Write a line about an event, with the time since the start."""
        seconds = time.monotonic() - self._begun
        write(self._console, f"{seconds:6.1f} s  {text}")

    def begin(self) -> None:
        """Start to show bars, if this is a terminal."""
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TaskProgressColumn(),
                _Count(),
                TextColumn("{task.fields[note]:<11}", style="dim"),
                console=self._console,
                expand=True,
                refresh_per_second=8,
            )
            self._progress.start()

    def show(self, bars: list[Bar]) -> None:
        """Update the bars, or write a line of progress from time to time."""
        self._last = bars
        if self._progress is not None:
            for bar in bars:
                if bar.name not in self._tasks:
                    self._tasks[bar.name] = self._progress.add_task(bar.name, note=bar.note)
                self._progress.update(
                    self._tasks[bar.name],  # type: ignore[arg-type]
                    completed=min(bar.done, bar.total),
                    total=bar.total,
                    note=bar.note,
                )
        elif not self._console.is_terminal and time.monotonic() - self._shown >= _PLAIN_EVERY:
            self._shown = time.monotonic()
            parts = [f"{bar.name} {_percent(bar)}" for bar in bars if bar.done < bar.total]
            note = next((bar.note for bar in bars if bar.done < bar.total), "")
            if parts:
                self.say(", ".join(parts) + (f" ({note})" if note else ""))

    def close(self) -> None:
        """Leave the bars on the screen, and restore the terminal."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _percent(bar: Bar) -> str:
    return f"{100 * min(bar.done, bar.total) // bar.total} %" if bar.total else "0 %"
