"""The output of commands: for people in a terminal, for awk in a pipe, as JSON.

A terminal gets tables with bold text and colour (unless NO_COLOR is set); a pipe gets the same
columns as plain words, with a header, and ``-`` for empty cells: only the last column may contain
blanks. Rich is imported only for a terminal. Text from others (fields of messages, names that
clients choose, reasons, words of a broker) never reaches a terminal as control characters:
`model.printing` escapes it here. JSON and raw bodies stay exact.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from ternmq.client.forms.values import plain
from ternmq.model.printing import printable, printable_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_encode: Final = msgspec.json.Encoder().encode
NOTHING: Final = "-"
_WIDE: Final = 10_000
_READABLE: Final = 24
"""Least width that the folded last column keeps, if its text is as long, before others go."""
_LONG: Final = 40
"""Longest text of a column that is shortened only after the spare columns are dropped."""
_SHORT: Final = 24
"""Least width to which texts of a column are shortened: times and most ids stay whole."""
_GAP: Final = 2
"""Blanks between two columns when they are close."""
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")

Cell = str | int | float | None


def json_option(function: Any) -> Any:
    """Add ``--json`` for a single document."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(
        function
    )


def ndjson_option(function: Any) -> Any:
    """Add ``--json`` for a stream of objects."""
    text = "Print one JSON object per line."
    return click.option("--json", "as_json", is_flag=True, help=text)(function)


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def console(*, error: bool = False) -> Console:
    """Return a terminal to draw on; printed text is not parsed for markup."""
    from rich.console import Console

    return Console(stderr=error, markup=False, highlight=False, emoji=False)


# ------------------------------------------------------------------------------------------- JSON


def encoded(value: object) -> bytes:
    """Return a value as compact JSON."""
    return _encode(value)


def encoded_plain(value: object) -> bytes:
    """Return a value as compact JSON; times and durations are allowed."""
    return _encode(plain(value))


def document(value: object) -> None:
    """Print one JSON document; JSON texts in it (``msgspec.Raw``) are printed unchanged."""
    mark = secrets.token_hex(16)
    texts: list[bytes] = []
    text = msgspec.json.format(_encode(_marked(plain(value), mark, texts)), indent=2)
    for at, one in enumerate(texts):
        text = text.replace(b'"%s-%d"' % (mark.encode(), at), one, 1)
    click.echo(text.decode())


def json_line(value: object) -> None:
    """Print a JSON object on its own line, without delay."""
    click.echo(_encode(plain(value)).decode())


def _marked(value: Any, mark: str, texts: list[bytes]) -> Any:
    """Replace JSON texts in a value by marks, and append them to ``texts``."""
    if isinstance(value, msgspec.Raw):
        texts.append(bytes(value))
        return f"{mark}-{len(texts) - 1}"
    if isinstance(value, dict):
        return {key: _marked(one, mark, texts) for key, one in value.items()}
    if isinstance(value, list):
        return [_marked(one, mark, texts) for one in value]
    return value


# ----------------------------------------------------------------------------------------- people


def none_of(what: str, app: str) -> str:
    """Return the text for an empty list: an app sees only what it has a right on.

    Args:
        what: Plural of the listed things.
        app: The app that asked; empty if the client has none.
    """
    return f"no {what} on which app {app!r} has a right" if app else f"no {what}"


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    nothing: str = "",
    *,
    header: bool = True,
    spare: Sequence[str] = (),
) -> None:
    """Print rows with column names; without rows, print ``nothing`` on standard error.

    Without ``header``, rows continue an earlier table. On a narrow terminal, columns of ``spare``
    are dropped in this order, and a note names them; then long texts are shortened.
    """
    kept = list(rows)
    if not is_terminal():
        _columns(columns, kept, header=header)
    elif kept:
        terminal = console()
        fits = fitted(columns, kept, spare, terminal.width, folds=True)
        made, is_shortened = drawn(fits.columns, fits.rows, terminal)
        terminal.print(made, crop=False)
        if fits.left_out:
            missing = ", ".join(fits.left_out)
            folded_note(f"no room for {missing}: a wider terminal or --json shows it")
        if is_shortened:
            folded_note("values with … are shortened: a wider terminal or --json shows all of them")
    if not kept and nothing:
        note(nothing)


def _columns(columns: Sequence[str], kept: list[Sequence[Cell]], *, header: bool) -> None:
    """Print plain columns for a pipe."""
    texts = [[name.replace(" ", "_") for name in columns]]
    texts += [[_word(cell, last=at == len(columns) - 1) for at, cell in enumerate(row)]
              for row in kept]  # fmt: skip
    widths = [max(len(row[at]) for row in texts) for at in range(len(columns))]
    numbers = numeric(kept) or [False] * len(columns)
    for row in texts if header else texts[1:]:
        cells = [
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(row, widths, numbers, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def numeric(rows: Sequence[Sequence[Cell]]) -> list[bool]:
    """Return for each column whether it has only numbers; empty without rows."""
    return [
        all(isinstance(cell, int | float | None) for cell in cells)
        for cells in zip(*rows, strict=True)
    ]


@dataclass(slots=True, frozen=True)
class Fitted:
    """The columns of a table that fit into a width.

    Attributes:
        columns: Their names.
        rows: Their cells.
        left_out: Names of the dropped columns.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    left_out: Sequence[str]


def fitted(
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    spare: Sequence[str],
    width: int,
    *,
    folds: bool = False,
) -> Fitted:
    """Drop columns of ``spare``, in this order, until a table fits into a width.

    With ``folds`` the last column may take several lines, broken between words; it keeps a width
    that is still readable. Very long texts do not push out other columns: they are shortened.
    """
    from rich.cells import cell_len

    widths: list[int] = []
    for at, name in enumerate(columns):
        texts = [name, *[shown(row[at]) for row in rows]]
        most = max(map(cell_len, texts))
        if folds and at == len(columns) - 1:
            words = [cell_len(word) for text in texts for word in text.split()]
            most = max(*words, min(most, _READABLE))
        widths.append(most if most <= _LONG else _SHORT)
    kept = list(range(len(columns)))
    left_out: list[str] = []
    for name in spare:
        if sum([widths[at] + _GAP for at in kept]) <= width + (0 if folds else _GAP):
            break
        left_out.append(name)
        kept.remove(columns.index(name))
    return Fitted(
        [columns[at] for at in kept], [[row[at] for at in kept] for row in rows], left_out
    )


def drawn(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], terminal: Console
) -> tuple[Table, bool]:
    """Return a table for a terminal, and whether texts in it are shortened.

    If columns do not fit, the gaps become smaller, then the last column is folded: between words,
    and very long words by the letter. Then the longest texts of the other columns are shortened in
    the middle. If that is not enough, the table is wider than the terminal: long lines show more
    than unreadable names.
    """
    from rich.cells import cell_len

    texts = [[shown(cell) for cell in row] for row in rows]
    numbers = numeric(rows) or [False] * len(columns)
    words = [word for row in texts for word in row[-1].split()] if not numbers[-1] else []
    longest = max(map(cell_len, words), default=0)
    folds = longest - _READABLE if longest > _LONG else 0
    made, least = _measured(columns, texts, numbers, terminal)
    shorter = texts
    if least - folds > terminal.width:
        shorter = _shorter(columns, texts, numbers, least - folds - terminal.width)
        made, least = _measured(columns, shorter, numbers, terminal)
    if least > terminal.width:
        made.width = max(least - folds, terminal.width)
    return made, shorter != texts


def _shorter(
    columns: Sequence[str], rows: list[list[str]], numbers: Sequence[bool], excess: int
) -> list[list[str]]:
    """Return rows that need ``excess`` less cells, if this is possible: the widest texts first."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]
    able = [at for at, number in enumerate(numbers[:-1]) if not number]
    while excess > 0 and able:
        widest = max(able, key=widths.__getitem__)
        if widths[widest] <= _SHORT:
            break
        widths[widest] -= 1
        excess -= 1
    return [
        [shortened(cell, widths[at]) if at in able else cell for at, cell in enumerate(row)]
        for row in rows
    ]


def shortened(text: str, width: int) -> str:
    """Return a text of at most ``width`` cells: its beginning and its end, with … between them."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    end = (width - 1) // 2
    head = set_cell_size(text, max(width - 1 - end, 0))
    return f"{head}…{set_cell_size(text[::-1], end)[::-1]}"


def _measured(
    columns: Sequence[str], rows: list[list[str]], numbers: Sequence[bool], terminal: Console
) -> tuple[Table, int]:
    """Return a table whose last column can be folded, and its least width."""
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 1))
    for at, (name, number) in enumerate(zip(columns, numbers, strict=True)):
        texts = [name, *[row[at] for row in rows]]
        whole = number or at < len(columns) - 1
        least = max(map(cell_len, texts))
        if not whole:
            words = max(cell_len(word) for text in texts for word in text.split())
            least = min(least, _READABLE, max(words, 1))
        made.add_column(
            name.replace("_", " "),
            justify="right" if number else "left",
            overflow="fold",
            no_wrap=whole,
            min_width=least,
        )
    for row in rows:
        made.add_row(*[Text(cell) for cell in row])
    wide = terminal.options.update(width=_WIDE)
    if terminal.measure(made, options=wide).maximum > terminal.width:
        made.collapse_padding = True
    return made, terminal.measure(made, options=wide).minimum


def details(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Print names and values, one a line; in a terminal, longer values are folded."""
    kept = [(printable(name), shown(value)) for name, value in pairs]
    width = max((len(name) for name, _ in kept), default=0)
    bold = is_terminal() and "NO_COLOR" not in os.environ
    indent = width + _GAP
    # Not the width of `console`: for that, Rich would be imported.
    room = max(get_terminal_size().columns - indent, _READABLE) if is_terminal() else _WIDE
    for name, value in kept:
        head = click.style(name.ljust(width), bold=True) if bold else name.ljust(width)
        text = value if len(value) <= room else folded_at(value, 0, room)
        click.echo(f"{head}  {text.replace(chr(10), chr(10) + ' ' * indent)}", color=bold)


def note(text: str) -> None:
    """Print a message for people on standard error."""
    click.echo(printable_lines(text), err=True)


def folded_note(text: str) -> None:
    """Print a message on standard error; in a terminal, a longer one is folded between words."""
    note(folded_at(text, 0, console(error=True).width) if sys.stderr.isatty() else text)


def line(text: str) -> None:
    """Print a line for people."""
    click.echo(printable(text))


def folded(text: str, indent: int) -> str:
    """Return a line for standard output: in a terminal, a longer one is folded between words."""
    return folded_at(text, indent, console().width) if is_terminal() else text


def folded_at(text: str, indent: int, width: int) -> str:
    """Return a line folded between words; lines after the first are indented, words stay whole."""
    from textwrap import wrap

    lines = wrap(
        text,
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines) or text


def shown(cell: Cell) -> str:
    """Return a cell as text."""
    if cell is None or cell == "":
        return NOTHING
    if isinstance(cell, float):
        return f"{cell:.1f}" if cell < 100 else f"{cell:.0f}"
    return printable(str(cell))


def _word(cell: Cell, *, last: bool) -> str:
    text = shown(cell)
    return text if last else "_".join(text.split()) or NOTHING


# ------------------------------------------------------------------------------------------ values


def span(seconds: float) -> str:
    """Return a duration in its two largest units: 3d4h, 10m, 2.5s, 12ms."""
    if seconds < 0:
        return "-" + span(-seconds)
    if 0 < seconds < 1:
        return f"{seconds * 1000:.3g}ms" if seconds >= 0.001 else f"{seconds * 1e6:.3g}us"
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f}s"
    left, parts = round(seconds), []
    for worth, unit in _UNITS:
        count, left = divmod(left, worth)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def size(count: float) -> str:
    """Return bytes in the most readable unit: 512B, 1.5MiB."""
    unit = 0
    while count >= 1024 and unit < len(_SIZES) - 1:
        count /= 1024
        unit += 1
    text = f"{count:.0f}" if unit == 0 or count >= 100 else f"{count:.1f}".removesuffix(".0")
    return text + _SIZES[unit]


def number(count: float) -> str:
    """Return a count for people: 12,345; small fractions with one digit."""
    return f"{count:,.0f}" if count >= 100 or count == int(count) else f"{count:.1f}"
