"""The exit statuses of all commands, and their meaning."""

from __future__ import annotations

import enum
from typing import Final


class ExitCode(enum.IntEnum):
    """The exit status. Numbers are never reused; ``docs/reference/cli.md`` has the table."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NO_BROKER = 3
    NOT_FOUND = 4
    NOT_ALLOWED = 5
    UNKNOWN = 6
    LATER = 7
    UNSOUND = 8
    HUNG_UP = 129
    INTERRUPTED = 130
    KILLED = 137
    PIPE_CLOSED = 141
    TERMINATED = 143


MEANING: Final[dict[ExitCode, str]] = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "the command failed; standard error shows the reason",
    ExitCode.USAGE: "wrong usage: a command, option, name, number or file is not valid",
    ExitCode.NO_BROKER: "no broker answers at the address, or no coordinator or database",
    ExitCode.NOT_FOUND: "there is no such topic, group, message, app, hold, alarm, transaction, "
    "row of an outbox, database file, broker, broker group, context or journal",
    ExitCode.NOT_ALLOWED: "the broker does not know the app and token, or the app may not do this; "
    "or the account of a database may not",
    ExitCode.UNKNOWN: "the connection was lost before the answer: the request may have been "
    "carried out or not",
    ExitCode.LATER: "the broker refused the request for now (busy, disk full, stopping, paused); "
    "the same request may succeed later",
    ExitCode.UNSOUND: "a check found a fault (`backup`, `demo`, `doctor`, `journal`), or topics "
    "and groups differ from the declaration (`apply`, `worker`)",
    ExitCode.HUNG_UP: "ended by SIGHUP: the terminal was closed",
    ExitCode.INTERRUPTED: "ended by Ctrl-C",
    ExitCode.KILLED: "killed (SIGKILL). `worker` with `--processes` or `--reload` also ends with "
    "this status if it had to kill one of its processes, 3 s after the second signal",
    ExitCode.PIPE_CLOSED: "the program that read the output has ended, such as `head`",
    ExitCode.TERMINATED: "ended by SIGTERM",
}


class Failed(Exception):
    """A command cannot continue; the text is one line that says what to do.

    Args:
        text: For people.
        code: Exit status.
    """

    def __init__(self, text: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(text)
        self.code = code


class Terminated(BaseException):
    """SIGTERM was received."""


class Interrupted(BaseException):
    """SIGINT was received: Ctrl-C."""
