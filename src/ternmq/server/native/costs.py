"""What a request costs a connection: units of work, bytes, and which ones have large answers."""

from __future__ import annotations

from typing import Final

from ternmq.server.desk.late import LATE
from ternmq.wire.commands import Command

REQUEST_BYTES: Final = 256
"""Bytes that a request counts for in addition to its body."""
HELD_BACK: Final = LATE | {Command.PULL, Command.JOURNAL_READ}
"""Requests with large answers: they wait while their app leaves too many answers untaken."""
UNITS: Final = dict.fromkeys(
    {
        Command.PING,
        Command.CANCEL,
        Command.SEND,
        Command.SETTLE,
        Command.EXTEND,
        Command.PREPARE,
        Command.JOURNAL_READ,
        Command.REPORT,
        Command.NUMBERS_TAKE,
        Command.SCHEDULE_CANCEL,
        Command.TRANSACTION_PREPARE,
        Command.TRANSACTION_SETTLE,
        Command.TRANSACTION_MOVE,
        Command.TRANSACTION_DECIDE,
    }
    | LATE,
    1,
) | {Command.PULL: 3}
"""Units of work of requests that take little work or run late; others cost ``CONTROL_UNITS``. A
pull that finds rows takes as long as several sends, one that has to wait about as long as one."""
