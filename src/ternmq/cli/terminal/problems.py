"""Errors as one line and an exit status."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click

from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.model.errors import (
    CannotConnect,
    ConnectionLost,
    CorruptJournal,
    FileMissing,
    Forbidden,
    GroupPaused,
    GroupSettingsMismatch,
    InvalidRequest,
    InvalidUrl,
    MessageNotFound,
    NotABroker,
    OffsetExpired,
    OptionError,
    OrderingKeyRequired,
    ProducerGroupTaken,
    SendTimeout,
    SettingsError,
    StrictNeedsReplica,
    TernMQError,
    TopicNotOrdered,
    TopologyMismatch,
    Unauthenticated,
    UnknownApp,
    UnknownGroup,
    UnknownProducerGroup,
    UnknownQueue,
    UnknownTopic,
    UnknownTransaction,
    UnsentMessages,
)

PROGRAM: Final = "ternmq"
"""Beginning of an error's line."""
_CODES: Final[tuple[tuple[tuple[type[TernMQError], ...], ExitCode], ...]] = (
    ((CannotConnect, NotABroker), ExitCode.NO_BROKER),
    ((ConnectionLost, SendTimeout, UnsentMessages), ExitCode.UNKNOWN),
    (
        (UnknownTopic, UnknownQueue, UnknownGroup, UnknownApp, MessageNotFound, OffsetExpired,
         FileMissing, UnknownProducerGroup, UnknownTransaction),
        ExitCode.NOT_FOUND,
    ),
    ((Unauthenticated, Forbidden, ProducerGroupTaken), ExitCode.NOT_ALLOWED),
    ((InvalidRequest, InvalidUrl, OptionError, SettingsError), ExitCode.USAGE),
    ((CorruptJournal, TopologyMismatch), ExitCode.UNSOUND),
)  # fmt: skip

_HINTS: Final[dict[type[TernMQError], str]] = {
    CannotConnect: "`ternmq dev` starts one; --url, TERNMQ_URL or `ternmq context use` sets the "
    "address",
    UnknownTopic: "`ternmq topic list` lists the topics, `ternmq topic create` creates one",
    UnknownGroup: "`ternmq group list` lists the groups, `ternmq group create` creates one",
    UnknownQueue: "`ternmq topic show` lists the queues of the topic",
    UnknownApp: "`ternmq app list` lists the apps",
    UnknownTransaction: "`ternmq transaction list` lists those that are undecided",
    GroupSettingsMismatch: "to use the settings of the group, leave out the options that differ "
    "(tags, filter, mode or start; in code also retry= or lease=); `ternmq group show` shows the "
    "settings",
    GroupPaused: "`ternmq group resume` resumes it",
    OrderingKeyRequired: "give --ordering-key for every message",
    TopicNotOrdered: "leave --ordering-key out, or send to an ordered topic: `ternmq topic create "
    "NAME --ordered`; with `ternmq topic set NAME --ignore-ordering-keys` the topic accepts "
    "ordering keys and ignores them",
    Unauthenticated: "check --app and --token, TERNMQ_APP and TERNMQ_TOKEN, or the context",
    StrictNeedsReplica: "`ternmq topic set NAME --durability normal` accepts sends without one",
    MessageNotFound: "",
    SendTimeout: "look the message up, or send it again with the same --id",
    ConnectionLost: "check whether the request was carried out before you try again",
}
"""Hints in terms of the command line; other errors use their own hint."""


_OF_ADMIN: Final = "app 'admin'"
"""Part of the broker's error about a wrong token of this app."""
_LOST: Final = (
    "; if the token of admin is lost, start the broker once with `ternmq serve --new-admin-token`"
)


def code_of(error: TernMQError) -> ExitCode:
    """Return the exit status for an error."""
    if isinstance(error, TopologyMismatch) and isinstance(error.__cause__, Forbidden):
        return ExitCode.NOT_ALLOWED
    for kinds, code in _CODES:
        if isinstance(error, kinds):
            return code
    return ExitCode.LATER if error.retriable else ExitCode.FAILED


def text_of(error: TernMQError) -> str:
    """Return an error as one line: what happened, and what to do."""
    text = str(error.args[0]) if error.args else type(error).__name__
    # A hint set on the error itself is more specific than that of its type.
    hint = error.hint if "hint" in vars(error) else _HINTS.get(type(error), error.hint)
    if isinstance(error, Unauthenticated) and _OF_ADMIN in text:
        hint += _LOST
    if isinstance(error, CannotConnect):
        text = _without_errno(text)
    return one_line(f"{text}: {hint}" if hint else text)


def text_of_usage(error: click.ClickException) -> str:
    """Return click's error as one line."""
    text = one_line(error.format_message()).rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return text
    return f"{text} (see `{context.command_path} --help`)"


def near(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean ...?` if one of the known names is like this one."""
    from difflib import get_close_matches  # for a wrong name only

    found = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


def not_found(text: str) -> Failed:
    """Return a failure with the status "not found"."""
    return Failed(text, ExitCode.NOT_FOUND)


def one_line(text: str) -> str:
    """Return a text without line breaks and control characters."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def _without_errno(text: str) -> str:
    """Return the text without errno, and with the address only once."""
    _, again, why = text.partition(": no broker at ")
    if again:
        text = f"no broker at {why}"
    for words, plain in (
        ("Connect call failed", "connection refused"),
        ("Name or service not known", "there is no host with this name"),
        ("Temporary failure in name resolution", "the host's name cannot be resolved"),
        ("No address associated", "the host's name has no address"),
    ):
        if words in text:
            head, _, _ = text.partition(": [")
            return f"{head} ({plain})"
    return text
