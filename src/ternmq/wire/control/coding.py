"""Shared by all control structs: their base, the bounds of fields, encoding and decoding."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from ternmq.model.errors import InvalidRequest, ProtocolError

T = TypeVar("T", bound=msgspec.Struct)

Number = Annotated[int, Meta(ge=0, le=2**32 - 1)]
"""Number of a queue, a session, a process: a u32."""
Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Time = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Limit = Annotated[int, Meta(ge=1, le=10_000)]
"""Most entries on a page."""
Text = Annotated[str, Meta(max_length=4096)]
PRINTABLE: Final = r"^[^\x00-\x1f\x7f-\x9f]*\Z"
"""Pattern of a text without control characters."""
Line = Annotated[str, Meta(max_length=200, pattern=PRINTABLE)]
"""Text without control characters, since it is shown in logs and lists."""
Token = Annotated[str, Meta(max_length=300)]
"""The place of a list's next page; made by the broker, opaque to clients."""
ClientName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")]
Offsets = Annotated[list[Offset], Meta(max_length=10_000)]


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of requests and answers."""


class Nothing(Body, frozen=True, kw_only=True):
    """An empty answer: the command succeeded, and its effect is durable."""


_decoders: Final[dict[type[Any], msgspec.msgpack.Decoder[Any]]] = {}
_encode: Final = msgspec.msgpack.Encoder().encode


def encode(struct: msgspec.Struct) -> bytes:
    """Return the body of a control request or answer.

    Raises:
        InvalidRequest: A text cannot be encoded as UTF-8, or a number does not fit 64 bits.
    """
    try:
        return _encode(struct)
    except (UnicodeEncodeError, OverflowError) as error:
        raise InvalidRequest(f"this {type(struct).__name__} cannot be sent: {error}") from error


def decode(body: bytes, kind: type[T]) -> T:
    """Return the decoded body of a request.

    Raises:
        InvalidRequest: It is no map with such fields, or a field is out of its bounds.
    """
    try:
        return _decode(body, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(
            f"the body is not a valid {kind.__name__}: {str(error)[:200]}"
        ) from error


def decode_answer(body: bytes, kind: type[T]) -> T:
    """Return the decoded body of an answer or a push.

    Raises:
        ProtocolError: It is no map with such fields. The outcome of the request is not known.
    """
    try:
        return _decode(body, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"the answer is no {kind.__name__}: {str(error)[:200]}") from error


def _decode(body: bytes, kind: type[T]) -> T:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    found: T = decoder.decode(body)
    return found
