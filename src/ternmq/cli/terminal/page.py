"""A page of a fixed size: figures, tables that share the remaining lines, and a last line.

The lines are counted before they are drawn. The most important text (that figures are old, how to
leave) is the last line, on a terminal of any size; above it are the names of columns for which
there is no room, and notes. Tables shrink first, then figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ternmq.cli.terminal import output
from ternmq.cli.terminal.output import Cell, Fitted

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_FRAME: Final = 2
"""Lines of a table other than rows: a blank one and the names of the columns."""
_GAP: Final = 2
"""Blanks between two columns."""
_LEAST: Final = 4
"""Least width of a column of texts."""
_NOTICE: Final = 3
"""Most lines of the notice about old figures."""


class Size(NamedTuple):
    """Columns and lines of a terminal."""

    columns: int
    lines: int


@dataclass(slots=True, frozen=True)
class Part:
    """A table of a page.

    Attributes:
        columns: Names of its columns.
        rows: All its rows, the most urgent first.
        spare: Columns to drop on a narrow terminal, in this order.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    spare: Sequence[str] = ()


@dataclass(slots=True, frozen=True)
class Page:
    """The content of a page.

    Attributes:
        figures: Names and values, one a line, above the tables.
        parts: The tables.
        below: The last line.
        stale: Replaces the last line if the figures are old; empty if they are not.
        turned: Number of times that the reader turned the page, so that tables begin with later
            rows; None if there is no such key.
        note: What readers should know about the rows; above the last line.
        turn: Added to the last line if a table has rows for which there is no room.
    """

    figures: Sequence[tuple[str, Cell]]
    parts: Sequence[Part]
    below: str
    stale: str = ""
    turned: int | None = None
    note: str = ""
    turn: str = ""


def shares(wanted: Sequence[int], lines: int) -> list[int]:
    """Divide lines among parts: none gets more than it wants; the rest is shared evenly."""
    given = [0] * len(wanted)
    hungry = [at for at, want in enumerate(wanted) if want]
    while lines > 0 and hungry:
        each = max(1, lines // len(hungry))
        for at in hungry:
            more = min(each, wanted[at] - given[at], lines)
            given[at] += more
            lines -= more
        hungry = [at for at in hungry if given[at] < wanted[at]]
    return given


def lay_out(page: Page, size: Size, *, fill: bool = True) -> RenderableType:
    """Return a page with at most the terminal's lines; with ``fill``, exactly as many."""
    from rich.console import Group

    lines, whole = _laid_out(page, size, fill=fill)
    if page.turn and not whole:
        lines, _ = _laid_out(replace(page, below=page.below + page.turn), size, fill=fill)
    return Group(*lines)


def _laid_out(page: Page, size: Size, *, fill: bool) -> tuple[list[RenderableType], bool]:
    """Return the lines of a page, and whether all rows of its tables are on it."""
    parts = [
        output.fitted(part.columns, part.rows, part.spare, size.columns)
        for part in page.parts
        if part.rows
    ]
    last = _last(page, parts, size)
    room = max(0, size.lines - len(last))
    # One row and "and 3 more" of each table have priority over the last figures.
    needed = sum([_FRAME + min(2, len(part.rows)) for part in parts])
    figures = page.figures[: min(room, max(1, room - needed))]
    lines: list[RenderableType] = [
        _line((f"{name:<10}", "bold"), output.shown(value)) for name, value in figures
    ]
    room -= len(lines)
    while parts and room <= _FRAME * len(parts):
        parts.pop(0)
    wanted = [len(part.rows) for part in parts]
    given = shares(wanted, room - _FRAME * len(parts))
    for part, most in zip(parts, given, strict=True):
        lines += _table(part, most, page.turned, size.columns)
        room -= _FRAME + most
    if fill:
        lines += [_line("") for _ in range(room)]
    return [*lines, *last], given == wanted


def _line(*pieces: str | tuple[str, str], style: str = "") -> Text:
    """Return text for one line, cut with an ellipsis if it does not fit."""
    from rich.text import Text

    return Text.assemble(*pieces, style=style, no_wrap=True, overflow="ellipsis")


def _last(page: Page, parts: Sequence[Fitted], size: Size) -> list[Text]:
    """Return the last line, folded if necessary, below the columns left out and the note."""
    missing = ", ".join([name for part in parts for name in part.left_out])
    if missing:
        missing = f"no room for {missing}"
    below = page.stale or page.below
    if missing and not page.stale and len(below) + len(missing) + 2 <= size.columns:
        below, missing = f"{below}; {missing}", ""
    last = _folded(below, size.columns, min(_NOTICE, size.lines))
    room = size.lines // 2 - len(last)
    named = _folded(missing, size.columns, room)
    noted = _folded(page.note, size.columns, room - len(named))
    return [
        *[_line(line, style="dim") for line in (*noted, *named)],
        *[_line(line, style="bold red" if page.stale else "dim") for line in last],
    ]


def _folded(text: str, columns: int, lines: int) -> list[str]:
    """Return a text as lines, broken between words; the last of ``lines`` has all the rest."""
    from textwrap import wrap

    found = wrap(text, columns)
    if len(found) <= lines:
        return found
    return [*found[: lines - 1], " ".join(found[lines - 1 :])] if lines > 0 else []


def widths_of(part: Fitted, width: int) -> list[int]:
    """Return the widths of columns: texts become narrower before a number is cut."""
    from rich.cells import cell_len

    widths = [
        max(map(cell_len, [name, *[output.shown(row[at]) for row in part.rows]]))
        for at, name in enumerate(part.columns)
    ]
    texts = [at for at, number in enumerate(output.numeric(part.rows)) if not number]
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    while excess > 0 and texts:
        widest = max(texts, key=widths.__getitem__)
        if widths[widest] <= _LEAST:
            break
        widths[widest] -= 1
        excess -= 1
    return widths


def _table(part: Fitted, lines: int, turned: int | None, width: int) -> list[RenderableType]:
    """Return a blank line, the names of the columns, and ``lines`` lines of rows."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    numbers, widths = output.numeric(part.rows), widths_of(part, width)
    for name, number, wide in zip(part.columns, numbers, widths, strict=True):
        made.add_column(
            name.replace("_", " "), width=wide,
            justify="right" if number else "left", overflow="ellipsis", no_wrap=True,
        )  # fmt: skip
    most = lines - 1 if 2 <= lines < len(part.rows) else lines
    pages = -(-len(part.rows) // most)
    at = (turned or 0) % pages
    rows = part.rows[at * most : (at + 1) * most]
    for row in rows:
        texts = [output.shown(cell) for cell in row]
        made.add_row(
            *[
                Text(text if number else output.shortened(text, wide))
                for text, number, wide in zip(texts, numbers, widths, strict=True)
            ]
        )
    drawn: list[RenderableType] = [_line(""), made, *[_line("")] * (most - len(rows))]
    if most < lines:
        where = "" if turned is None else f" (page {at + 1} of {pages})"
        drawn.append(_line(f"and {len(part.rows) - len(rows):,} more{where}", style="dim"))
    return drawn
