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

Made by `make docs` from `src/ternmq/cli/`: change it there. `ternmq COMMAND --help` prints the same
texts.

## Broker, app and token

Every command that connects to a broker has these options. You can write them before or after the
name of the command:

{connection}

Before it ends, a command that sent messages reports their number to the broker, and a command that
received messages settles the last ones. This takes another request. So if the broker does not
answer, the command takes up to twice the timeout, plus 3 s to disconnect.

A command takes the address of the broker from the first of these places that has one:

1. `--url`
2. a named context: `--context`, or `TERNMQ_CONTEXT`
3. `TERNMQ_URL`
4. the context in use (`ternmq context use`)
5. this machine, port 7117

[ternmq worker](#ternmq-worker) uses only the first three places. It compares `--url` and a named
context with the address in the code, and uses `TERNMQ_URL` only if none of these gives an address.
It does not accept `--timeout`.

If a context gives the address, it also gives the app and the token, unless `--app` or `--token` is
given. Otherwise, a command uses `--app` and `--token`; without these options, the app and token in
the address (`ternmq://APP:TOKEN@HOST:PORT`); without these, `TERNMQ_APP` and `TERNMQ_TOKEN`. If a
context gives the address, the command does not read `TERNMQ_APP` and `TERNMQ_TOKEN`, and prints a
note if they differ from app and token of the context. `--url` and `--context` cannot be given
together. The token of a context is never sent to another broker. Contexts are stored in
`$XDG_CONFIG_HOME/ternmq/contexts.json` (`~/.config/ternmq/contexts.json`). Only the owner of this
file can read it.

## Values

* Durations: `250ms`, `90s`, `10m`, `1h30m`, `7d`. Sizes: `512B`, `4KiB`, `1MiB`, `1GiB`.
* Times: `10m` or `-10m` means 10 minutes ago (with `delay list`, `10m` means 10 minutes from now,
  and `-10m` is refused); `14:30` is a time of today; `2026-01-31`, `2026-01-31T14:30` and
  `2026-01-31T14:30:00Z` are a date, or a date and a time. A time without a time zone is in the time
  zone of the machine. A range begins at `--since` and ends before `--until`. Commands print times
  in UTC.
* Names: 1 to 127 characters of `A-Z a-z 0-9 . _ -`; the name of a broadcast instance, at most 120.
* Offsets: `7`. If a command accepts several offsets, also a range: `10-12`.

## Output

A command prints its result on standard output, and everything else on standard error. In a
terminal, tables have colours and bold text (`NO_COLOR` turns the colours off). If a table is wider
than the terminal, some columns are left out, and long values are shortened (`…`). In a pipe, a
table has plain columns and a header, so that `awk` and `sort` can read it. An empty value is
printed as `-`. Only the last column can contain blanks. In the other columns a blank is printed as
`_`, so `team shop` and `team_shop` look the same. Scripts that need the exact values use `--json`.

`--json` prints one JSON document. Commands that print streams (`tail`, `consume`, `send`, lists of
messages, `delay list`, `group lag`, `top`, `journal dump`, `journal index`, `pipeline run`) print
one object per line instead. In JSON, times are in ISO 8601 and
UTC. Fields whose names end in `_s` are durations in seconds. Fields whose names end in `_bytes` are
sizes in bytes.

In JSON, a message has its body in the field `body`. A JSON body is printed as it was stored
(numbers, blanks and repeated names are not changed), and a text body as a string. Any other body,
and JSON that some readers refuse (`1e999`), is in the field `body_base64`. JSON that has several
lines, or blanks around it, is in both fields: in `body` without these blanks, and in `body_base64`
as it was stored.

`send --json-in` stores the JSON text in `body` without changes. If a line has both fields, the
command stores `body_base64`; if the two fields differ, it refuses the line. So a script that
changes `body` must delete `body_base64`. The fields of a message's place and history (`topic`,
`queue`, `offset`, `stored_at`, `attempt` ...) are ignored, whatever they contain: TOPIC and
`--queue` select where the message goes. `--priority` replaces the `priority` of each line: to send
lines of a topic with levels to a topic without levels, use `--priority 0`. Every other option
applies only to lines that lack its field: `--key` applies only to lines without `key`. `--header`
adds its headers to those of the line.

## Exit status

{exits}

At the first SIGTERM, Ctrl-C or SIGHUP, `serve`, `dev` and `worker` finish their work, and end with
0. In the first moment of such a command, while Python still loads it, these signals end it like any
other command. Under `nohup`, SIGHUP ends no command.

An error is one line on standard error. It says what happened and what to do. `ternmq completion`
prints a script with which the shell completes commands, options, topics and groups.
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
        if _is_connection(parameter) is connection:
            names, text = (part.replace("|", "\\|") for part in record)
            rows.append(f"| `{names}` | {text} |")
    return "\n".join(["| option | what it does |", "|---|---|", *rows]) if rows else ""


def _is_connection(option: click.Option) -> bool:
    """Return whether an option is one of those by which all commands find the broker.

    ``context add`` has options of these names that mean something else: it stores them.
    """
    shared = {one.name: one.help for one in ternmq.params if isinstance(one, click.Option)}
    return option.name in CONNECTION and option.help == shared.get(option.name, option.help)
