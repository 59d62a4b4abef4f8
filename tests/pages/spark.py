"""The page of Spark's options, made of the tables of ``ternmq.spark``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ternmq.pipeline.source.choosing import OPTIONS
from ternmq.spark.journal import options as journal_options
from ternmq.spark.topics import table
from ternmq.spark.topics.table import CONNECTION, Option, Use

_HEAD: Final = """\
# Options for Spark

Made by `make docs` from `ternmq/spark/topics/table.py`, `ternmq/spark/journal/options.py` and
`ternmq/pipeline/source/choosing.py`: change them there.

The names of options are not case-sensitive. A wrong name or value is an error that names the
option. [Your messages as tables](../guide/tables.md) shows how to use them.
"""
_USES: Final = (
    (Use.BATCH_READ, "read"),
    (Use.STREAM_READ, "readStream"),
    (Use.BATCH_WRITE, "write"),
    (Use.STREAM_WRITE, "writeStream"),
)


def _table(options: Iterable[Option]) -> str:
    lines = ["| option | for | default | what |", "|---|---|---|---|"]
    for one in options:
        uses = "all" if one.use == Use.ALL else ", ".join(n for use, n in _USES if one.use & use)
        default = one.default or "–"
        lines.append(f"| `{one.name}` | {uses} | {default} | {one.about} |")
    return "\n".join(lines)


def page() -> str:
    """Return the page."""
    known = {one.name for one in CONNECTION}
    return "\n".join(
        [
            _HEAD,
            "## Which broker\n",
            _table(CONNECTION),
            '\nThese options apply to `format("ternmq")` and `format("ternmq.journal")`.\n',
            '## `format("ternmq")`\n',
            _table(one for one in table.TABLE if one.name not in known),
            '\n## `format("ternmq.journal")`\n',
            _table(one for one in journal_options.TABLE if one.name not in known),
            '\n## `format("ternmq.table")`\n',
            "Reads a [table of the pipeline](tables.md), and needs no broker.\n",
            "| option | default | what |",
            "|---|---|---|",
            *[
                f"| `{name}` | {default or '–'} | {what} |"
                for name, (default, what) in OPTIONS.items()
            ],
            "",
        ]
    )
