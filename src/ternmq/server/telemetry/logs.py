"""Logs of the broker process: text lines or JSON. They contain no bodies and no secrets."""

from __future__ import annotations

import logging
import sys
import time
from typing import Final

import msgspec

from ternmq.model.printing import printable, printable_lines
from ternmq.settings import LogFormat, Settings

_encode: Final = msgspec.json.Encoder().encode
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the fields given as ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; JSON escapes line breaks in the message."""
        told: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in record.__dict__.items():
            if name not in _STANDARD:
                told[name] = value if isinstance(value, int | float | bool) else str(value)
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return _encode(told).decode()


class TextFormatter(logging.Formatter):
    """A line of text; control characters in the message are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        text = printable(record.getMessage())
        line = f"{_time(record)} {record.levelname:<8} {record.name}: {text}"
        if record.exc_info:
            line += "\n" + printable_lines(self.formatException(record.exc_info))
        return line


def _time(record: logging.LogRecord) -> str:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{stamp}.{int(record.msecs):03d}Z"


def set_up(settings: Settings) -> None:
    """Set the process's logging to standard error, in the format and level of the settings."""
    handler = logging.StreamHandler(sys.stderr)
    as_json = settings.log_format is LogFormat.JSON
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    logging.getLogger("ternmq.audit").setLevel(logging.INFO)  # whatever the level of the rest
