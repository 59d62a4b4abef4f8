"""Errors as ``application/problem+json`` (RFC 9457), out of the one table of errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from ternmq.model.errors import (
    BufferFull,
    CannotConnect,
    ConnectionLost,
    MessageTooLarge,
    TernMQError,
)

CONTENT_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
"""Seconds after which a request that was refused for now is worth another try."""
_STATUS: Final[tuple[tuple[type[TernMQError], HTTPStatus], ...]] = (
    (CannotConnect, HTTPStatus.SERVICE_UNAVAILABLE),
    (ConnectionLost, HTTPStatus.GATEWAY_TIMEOUT),
    (BufferFull, HTTPStatus.SERVICE_UNAVAILABLE),
    (MessageTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
)
"""Statuses that the table of errors does not have."""


class NotFound(TernMQError):
    """There is no such path."""

    http = 404


class MethodNotAllowed(TernMQError):
    """The path has no such method; ``allowed`` are those that it has."""

    http = 405

    def __init__(self, text: str, allowed: set[str]) -> None:
        super().__init__(text)
        self.allowed = allowed


class BodyTooLarge(TernMQError):
    """The body of the request is larger than the server takes."""

    http = 413


class UnsupportedType(TernMQError):
    """The body of the request has a type that the path does not take."""

    http = 415


class BodyTooSlow(TernMQError):
    """The body of the request did not arrive in time."""

    http = 408


class OtherSite(TernMQError):
    """A page of another site sent the request."""

    http = 403


class WrongHost(TernMQError):
    """The request is for a name that this server was not told to answer to."""

    http = 421


def status_of(error: TernMQError) -> int:
    """Return the status with which an error is answered."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return int(status)
    return error.http


def problem(error: TernMQError, request_id: str) -> dict[str, Any]:
    """Return an error as a problem."""
    status = status_of(error)
    found: dict[str, Any] = {
        "type": f"urn:ternmq:error:{error.code}" if error.code else "about:blank",
        "title": type(error).__name__,
        "status": status,
        "detail": str(error.args[0]) if error.args else type(error).__name__,
    }
    if error.hint:
        found["hint"] = error.hint
    if error.code:
        found["code"] = error.code
    found["retriable"] = error.retriable or status == HTTPStatus.SERVICE_UNAVAILABLE
    found["request_id"] = request_id
    return found
