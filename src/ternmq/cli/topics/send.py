"""``ternmq send``: sends messages from arguments, lines, files."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import click

from ternmq.cli.commands import Command
from ternmq.cli.reach.arguments import topic_argument
from ternmq.cli.reach.connection import asks_broker
from ternmq.cli.reach.parameters import POSITIVE_DURATION, PROPERTY, QUEUE, Whole
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.problems import text_of as text_of_error
from ternmq.cli.topics.due import delay_of, due_options
from ternmq.cli.topics.lines import line_batches
from ternmq.client.client import Client
from ternmq.client.content.codecs import JSON, TEXT
from ternmq.client.content.message import Message, Receipt
from ternmq.client.forms import values
from ternmq.client.forms.messages import message_of, no_constant
from ternmq.model.errors import ConnectionLost, SendTimeout, TernMQError
from ternmq.model.specs import MAX_LEVELS
from ternmq.model.words import counted, verb

_FAILURES_SHOWN: Final = 10
_BEHIND: Final = "it and the lines after it were not sent"


@click.command(cls=Command)
@topic_argument()
@click.argument("bodies", metavar="[BODY]...", nargs=-1)
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Send a whole file as one message; -: standard input. May be repeated.",
)
@click.option(
    "-l",
    "--lines",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Send each line of a file as a message; -: standard input.",
)
@click.option(
    "--json-in",
    is_flag=True,
    help="Read messages as JSON: lines of `tail --json` (body, key, tag, headers ...), or of "
    "`deadletter export`. Exported dead letters are sent without the ids that the "
    "application gave.",
)
@click.option("-k", "--key", default="", help="Key by which the messages can be looked up.")
@click.option(
    "-o",
    "--ordering-key",
    default="",
    help="Ordering key: on an ordered topic, messages with the same ordering key are delivered in "
    "order.",
)
@click.option(
    "-t", "--tag", default="", help="Tag: the kind of the message, for filters of groups."
)
@click.option(
    "-H",
    "--header",
    "headers",
    type=PROPERTY,
    multiple=True,
    metavar="NAME=VALUE",
    help="Header of the message. May be repeated.",
)
@click.option(
    "--id",
    "application_id",
    help="Your own id, for a single message. Several sends with the same id store the message "
    "only once (for 10m by default).",
)
@click.option(
    "--content-type",
    help="Content type. Default: JSON for a JSON object or array, text for other text, else none.",
)
@click.option(
    "--queue",
    type=QUEUE,
    help="Queue number. Default: by ordering key or key; without a key, each batch goes to the "
    "next queue.",
)
@click.option(
    "--priority",
    type=Whole(min=0, max=MAX_LEVELS - 1),
    metavar="LEVEL",
    help="Level of the messages, on a topic with levels; higher ones are delivered first. "
    "Default: 0, the lowest.",
)
@due_options
@click.option(
    "--expires",
    "expires_after",
    type=POSITIVE_DURATION,
    metavar="DURATION",
    help="Time after which the messages expire, such as 10m, counted from now, or from when they "
    "are due. An expired message is neither delivered for the first time nor retried. If the "
    "topic has a limit too, the earlier time counts.",
)
@click.option("-q", "--quiet", is_flag=True, help="Do not print what was stored.")
@output.ndjson_option
@asks_broker
async def send(
    client: Client,
    topic: str,
    bodies: Sequence[str],
    files: Sequence[str],
    lines: str | None,
    json_in: bool,
    key: str,
    ordering_key: str,
    tag: str,
    headers: Sequence[tuple[str, str]],
    application_id: str | None,
    content_type: str | None,
    queue: int | None,
    priority: int | None,
    delay: timedelta | None,
    due_at: datetime | None,
    delay_level: int | None,
    expires_after: timedelta | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Send messages: arguments, whole files, or the lines of a file or of standard input.

    Without BODY, --file and --lines, each line of standard input is a message. The command ends
    when all messages are stored; each message that was not stored is reported on standard error. An
    empty input is not an error: nothing is sent, and the exit status is 0, even if there is no such
    topic.

    With --delay, --at or --delay-level, the messages are scheduled: they are stored now, and
    delivered when they are due. `ternmq delay` lists and cancels them.
    """
    _check_headers(headers)
    after = delay_of(delay, due_at, delay_level)
    properties = Message(
        b"", key, ordering_key, tag, dict(headers), content_type or "", application_id, queue,
        after, due_at, priority, expires_after,
    )  # fmt: skip
    if lines is None and not bodies and not files:
        lines = "-"
    if application_id is not None and (lines is not None or len(bodies) + len(files) != 1):
        raise click.UsageError(
            "--id is for one message: give one BODY or one --file", click.get_current_context()
        )
    if json_in and files:
        raise click.UsageError(
            "--json-in cannot be combined with --file: use --lines, BODY or standard input",
            click.get_current_context(),
        )
    if [*files, lines].count("-") > 1:
        raise click.UsageError(
            "standard input (-) can be read only once", click.get_current_context()
        )
    made = Maker(properties, content_type, json_in=json_in)
    told = Results(topic, each=lines is None, quiet=quiet, as_json=as_json)
    given = [made.of(one.encode(errors="surrogateescape"), f"message {at}")
             for at, one in enumerate(bodies, 1)]  # fmt: skip
    given += [made.of(_read(one), one) for one in files]
    if given:
        await _send(client, topic, given, told)
    if lines is not None:
        if lines == "-" and sys.stdin.isatty():
            output.note("one message per line; Ctrl-D ends the input")
        await _send_lines(client, topic, lines, made, told)
    told.end()


class Maker:
    """Makes messages from bodies."""

    def __init__(self, properties: Message, content_type: str | None, *, json_in: bool) -> None:
        self._properties = properties
        self._content_type = content_type
        self._json_in = json_in

    def of(self, body: bytes, place: str, unsent: str = "nothing was sent") -> Message:
        """Return a message.

        Args:
            body: Its content, or JSON that describes it.
            place: Where it was read, for the error.
            unsent: What is not sent if the body is not valid, for the error.

        Raises:
            Failed: The body does not describe a message.
        """
        if self._json_in:
            try:
                return message_of(body, self._properties)
            except ValueError as error:
                raise Failed(f"{place} {error}; {unsent}", ExitCode.USAGE) from error
        kind = self._content_type
        return replace(
            self._properties, body=body, content_type=kind_of(body) if kind is None else kind
        )


def kind_of(body: bytes) -> str:
    """Return the content type of bytes: JSON for an object or array, text, or none."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return ""
    if text.lstrip()[:1] in {"{", "["}:
        try:
            json.loads(text, parse_constant=no_constant)
        except (ValueError, RecursionError):
            return TEXT
        return JSON
    return TEXT


class Results:
    """Prints and counts the results of sends: each message, or totals."""

    def __init__(self, topic: str, *, each: bool, quiet: bool, as_json: bool) -> None:
        self._topic = topic
        self._each = each
        self._quiet = quiet
        self._as_json = as_json
        self._began = self._shown = time.monotonic()
        self._live = sys.stderr.isatty() and not each
        self.stored = 0
        self.duplicates = 0
        self.scheduled = 0
        self.failed = 0
        self.uncertain = 0
        self.first: TernMQError | None = None

    def stored_one(self, receipt: Receipt) -> None:
        """Process the receipt of a message."""
        self.stored += 1
        # Without an id, it is a request that was sent again after a lost connection: stored once.
        again = receipt.duplicate and bool(receipt.application_id)
        self.duplicates += again
        self.scheduled += receipt.due_at is not None and not again
        if self._quiet:
            return
        if self._as_json:
            output.json_line(
                {
                    "id": receipt.id,
                    "topic": receipt.topic,
                    "queue": receipt.queue,
                    "offset": receipt.offset,
                    "durable": receipt.durable,
                    "duplicate": receipt.duplicate,
                    "application_id": receipt.application_id,
                    "due_at": receipt.due_at,
                }
            )
        elif self._each:
            extra = "  duplicate" if receipt.duplicate else ""
            output.line(f"{_place_of(receipt)}  {receipt.id}{extra}")

    def failed_one(self, number: int, error: Exception) -> None:
        """Process a message that is not stored, or of which that is not known."""
        self.failed += 1
        self.uncertain += isinstance(error, SendTimeout | ConnectionLost)
        if isinstance(error, TernMQError):
            self.first = self.first or error
            text = text_of_error(error)
        else:
            text = str(error)
        if self.failed <= _FAILURES_SHOWN:
            self._clear()
            output.note(f"ternmq: message {number} was not stored: {text}")

    def progress(self) -> None:
        """Show the progress from time to time, in a terminal."""
        now = time.monotonic()
        if self._live and now - self._shown > 0.2:
            self._shown = now
            rate = self.stored / max(now - self._began, 1e-3)
            click.echo(f"\r\x1b[K{self.stored:,} stored, {rate:,.0f}/s", err=True, nl=False)

    def _clear(self) -> None:
        if self._live:
            click.echo("\r\x1b[K", err=True, nl=False)

    def broken_off(self, error: Failed) -> Failed:
        """Return the failure that ends sending, with the number stored so far."""
        self._clear()
        failed = f", {self.failed:,} not" if self.failed else ""
        return Failed(f"{error}; stored {counted(self.stored, 'message')}{failed}", error.code)

    def end(self) -> None:
        """Print the result.

        Raises:
            Failed: Not all messages are stored.
        """
        self._clear()
        if self.failed:
            sent = counted(self.stored + self.failed, "message")
            text = f"{self.failed:,} of {sent} {verb(self.failed, 'was', 'were')} not stored"
            code = ExitCode.UNKNOWN if self.uncertain else ExitCode.FAILED
            raise Failed(text, code)
        if not (self._each or self._quiet or self._as_json):
            more = (
                f"; not stored again: {counted(self.duplicates, 'message')} with an id that "
                "was stored before" if self.duplicates else ""
            )  # fmt: skip
            new = self.stored - self.duplicates
            later = ""
            if self.scheduled:
                some = "" if self.scheduled == new else f"{self.scheduled:,} of them "
                later = f", {some}not due yet"
            output.note(f"stored {counted(new, 'message')} in {self._topic}{later}{more}")


def _place_of(receipt: Receipt) -> str:
    """Return where a message is stored, as text; a scheduled one is in no queue."""
    if receipt.due_at is not None and receipt.offset is None:
        return f"{receipt.topic} (scheduled, due at {values.iso(receipt.due_at)})"
    offset = "?" if receipt.offset is None else receipt.offset
    return f"{receipt.topic}/{receipt.queue}/{offset}"


def _check_headers(headers: Sequence[tuple[str, str]]) -> None:
    """Refuse a header that is given twice: a message has one value of each.

    Raises:
        click.UsageError: It names the header.
    """
    names = [name for name, _ in headers]
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(
                f"header {name!r} is given twice; a header has one value",
                click.get_current_context(),
            )


async def _send_lines(client: Client, topic: str, path: str, made: Maker, told: Results) -> None:
    """Send the lines of a file; lines before an invalid one are still sent.

    Raises:
        Failed: A line is not valid, or the file cannot be read.
    """
    batches = line_batches(path)
    while True:
        messages: list[Message] = []
        failed: Failed | None = None
        try:
            for at, line in await anext(batches):
                messages.append(made.of(line, f"line {at}", _BEHIND))
        except StopAsyncIteration:
            return
        except Failed as error:
            failed = error
        except OSError as error:
            failed = _unreadable(path, error)
        if messages:
            await _send(client, topic, messages, told)
        if failed is not None:
            raise told.broken_off(failed)


async def _send(client: Client, topic: str, messages: list[Message], told: Results) -> None:
    """Send messages and wait for all of them.

    Raises:
        TernMQError: None of the first batch was stored, so that the rest would fail too.
    """
    before = told.stored + told.failed
    if len(messages) == 1 and not before:
        told.stored_one(await _send_one(client, topic, messages[0]))
        return
    results = await client.send_many(topic, messages, return_errors=True)
    for at, result in enumerate(results, before + 1):
        if isinstance(result, Receipt):
            told.stored_one(result)
        else:
            told.failed_one(at, result)
    told.progress()
    if told.first is not None and not told.stored and told.failed >= len(messages):
        if len(messages) > 1:
            output.note(
                f"none of the first {len(messages):,} messages was stored: no more are sent"
            )
        raise told.first


async def _send_one(client: Client, topic: str, message: Message) -> Receipt:
    return await client.send(
        topic,
        message.body,
        key=message.key,
        ordering_key=message.ordering_key,
        tag=message.tag,
        headers=message.headers,
        content_type=message.content_type,
        id=message.id,
        queue=message.queue,
        deliver_after=message.deliver_after,
        deliver_at=message.deliver_at,
        priority=message.priority or 0,
        expires_after=message.expires_after,
    )


def _read(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> Failed:
    path = "standard input" if path == "-" else path
    return Failed(f"{path} cannot be read: {error.strerror}", ExitCode.USAGE)
