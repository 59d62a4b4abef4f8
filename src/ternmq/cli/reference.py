"""Makes ``docs/reference/cli.md`` from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from ternmq.cli.commands import CONNECTION, TABLE
from ternmq.cli.main import ternmq
from ternmq.cli.terminal.exits import MEANING
from ternmq.cli.terminal.problems import PROGRAM

_HEAD = """\
# Command line

Made by `make docs` from `src/ternmq/cli/`: change it there. `ternmq COMMAND --help` says the same.

## Which broker, and as whom

Every command that asks a broker takes these, before or behind its name:

{connection}

The first of these that is there names the broker:

1. `--url`
2. a named context: `--context`, or `TERNMQ_CONTEXT`
3. `TERNMQ_URL`
4. the context in use (`ternmq context use`)
5. this machine, port 7117

([ternmq worker](#ternmq-worker) compares the first three with what the code names, and takes no
other.) App and token come from the same source as the address. With `--url` or
`TERNMQ_URL`, these are `--app` and `--token`, else those in the address
(`ternmq://APP:TOKEN@HOST:PORT`), else `TERNMQ_APP` and `TERNMQ_TOKEN`. If a context gives the
address, `TERNMQ_APP` and `TERNMQ_TOKEN` are not read, and a command prints a note about it. The
token of a context is never sent to another broker. Contexts are kept in
`$XDG_CONFIG_HOME/ternmq/contexts.json` (`~/.config/ternmq/contexts.json`), which only its owner can
read.

## Values

* Durations: `250ms`, `90s`, `10m`, `1h30m`, `7d`. Sizes: `512B`, `4KiB`, `1MiB`, `1GiB`.
* Times: a duration is so long ago (`10m`); `14:30` is today; `2026-01-31`, `2026-01-31T14:30` and
  `2026-01-31T14:30:00Z` are themselves. Without a zone it is the machine's own.
* Names: 1 to 127 of `A-Z a-z 0-9 . _ -`.
* Offsets, where many may be named: `7`, `10-12`.

## Output

What was asked for is on standard output, everything else on standard error. In a terminal tables
have colour and weight (`NO_COLOR` takes the colour away); in a pipe they are plain columns with a
header, `-` where there is nothing, and blanks in the last column only, for `awk` and `sort`: in
the others a blank of a value is written `_`, so that `team shop` and `team_shop` look alike. A
script that needs values as they are takes `--json`.
`--json` prints one JSON document, or for streams (`tail`, `consume`, `send`, lists of messages,
`group lag`, `top`) one object a line. Times in JSON are ISO 8601 in UTC, durations are seconds in
fields whose names end in `_s`, sizes bytes in fields that end in `_bytes`.

In JSON, a message has its body in `body`: JSON as the text that was stored (numbers, blanks and
repeated names stay as they are), text as a string. Any other body, and JSON that not every reader
takes (`1e999`), is in `body_base64`. JSON of several lines, or with blanks around it, is in both:
in `body` without the blanks, in `body_base64` as it was stored. `send --json-in` stores the JSON
text of `body` as the line has it. Of a line with both fields it stores `body_base64`; if the two
differ, it refuses the line. A script that changes `body` deletes `body_base64`.

## Exit status

{exits}

Errors are one line on standard error that says what to do. `ternmq completion` makes the shell
complete commands, options, topics and groups.
"""


def reference() -> str:
    """Return the page."""
    root = ternmq.make_context(PROGRAM, [], resilient_parsing=True)
    exits = "| status | meaning |\n|---|---|\n" + "\n".join(
        f"| {int(code)} | {text} |" for code, text in MEANING.items()
    )
    parts = [_HEAD.format(connection=_table(ternmq, root, connection=True), exits=exits)]
    section = ""
    for name, entry in TABLE.items():
        if entry.section != section:
            section = entry.section
            parts.append(f"## {section}\n")
        command = ternmq.get_command(root, name)
        assert command is not None
        parts += _described(command, root, name)
    return "\n".join(parts)


def _described(command: click.Command, above: click.Context, name: str) -> Iterator[str]:
    """Yield the parts of the page about a command and its subcommands."""
    context = click.Context(command, info_name=name, parent=above)
    below = command.commands if isinstance(command, click.Group) else {}
    yield f"### {context.command_path}\n"
    if not below:
        yield f"```\n{command.get_usage(context).removeprefix('Usage: ')}\n```\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    options = _table(command, context, connection=False)
    if options:
        yield options + "\n"
    for one, sub in below.items():
        yield from _described(sub, context, one)


def _table(command: click.Command, context: click.Context, *, connection: bool) -> str:
    """Return the options of a command as a table; empty if it has none."""
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or not isinstance(parameter, click.Option):
            continue
        if {"--help", "--version"} & set(parameter.opts):
            continue
        if (parameter.name in CONNECTION) is connection:
            names, text = (part.replace("|", "\\|") for part in record)
            rows.append(f"| `{names}` | {text} |")
    return "\n".join(["| option | what it does |", "|---|---|", *rows]) if rows else ""
