"""Reasons of failures as text, for any value that was given or raised as the reason.

Nothing here raises: an error in the text of an error would end the worker, and the failed message
would never become a dead letter.
"""

from __future__ import annotations

from ternmq.model.errors import TernMQError


def reason_text(reason: object) -> str:
    """Return a reason as text: an exception with its type, None as "", bytes as UTF-8."""
    if isinstance(reason, str):
        return reason
    if reason is None:
        return ""
    if isinstance(reason, BaseException):
        return error_text(reason)
    if isinstance(reason, bytes | bytearray):
        return reason.decode(errors="backslashreplace")
    return safe_str(reason)


def error_text(error: BaseException) -> str:
    """Return an exception as ``Type: text``; without a text its type alone."""
    told: object = error.args[0] if isinstance(error, TernMQError) and error.args else error
    text, name = safe_str(told), type(error).__name__
    return f"{name}: {text}" if text else name


def safe_str(value: object) -> str:
    """Return ``str(value)``; if that fails, the value's type and the type of the error."""
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - a class of the application: it may raise anything
        return f"<{type(value).__name__}, whose text cannot be made: {type(error).__name__}>"
