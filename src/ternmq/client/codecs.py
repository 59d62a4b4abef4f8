"""Bodies: from what is sent to bytes, and from bytes to what a handler's annotation names.

A body's content type says how it was made::

    bytes, bytearray, memoryview                            (none)
    str                                                     text/plain
    None, bool, int, float, list, tuple, dict, dataclass,
    msgspec.Struct, pydantic model, datetime, UUID, ...     application/json

``content_type="application/msgpack"`` makes msgpack of the latter. Other types are registered with
``Codecs.register``. A body without content type is decoded as an annotation asks: bytes as they
are, str as UTF-8, everything else as JSON.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ternmq.model.errors import DecodeError, EncodeError, InvalidRequest

TEXT: Final = "text/plain"
JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
RAW: Final = ("", "application/octet-stream")

Encode = Callable[[object], bytes]
"""Turns a body into bytes."""
Decode = Callable[[bytes, Any], object]
"""Turns bytes into a value of the type that the second argument names (``Any``: of any)."""

_RAW_TYPES: Final = (bytes, bytearray, memoryview)


@dataclasses.dataclass(slots=True, frozen=True)
class _Codec:
    encode: Encode
    decode: Decode


class Codecs:
    """The codecs of a client, by content type."""

    __slots__ = ("_codecs",)

    def __init__(self) -> None:
        self._codecs: dict[str, _Codec] = {
            JSON: _Codec(_to_json, _from_json),
            MSGPACK: _Codec(_to_msgpack, _from_msgpack),
            TEXT: _Codec(_to_text, _from_text),
        }

    def register(self, content_type: str, *, encode: Encode, decode: Decode) -> None:
        """Have bodies of a content type encoded and decoded by these.

        Raises:
            InvalidRequest: No content type is given.
        """
        if not content_type or not content_type.isascii():
            raise InvalidRequest(f"{content_type!r} is no content type")
        self._codecs[content_type] = _Codec(encode, decode)

    def encode(self, body: object, content_type: str = "") -> tuple[bytes, str]:
        """Return (bytes, content type) of a body.

        Raises:
            EncodeError: It cannot be encoded so.
        """
        if isinstance(body, _RAW_TYPES):
            return bytes(body), content_type
        if not content_type:
            content_type = TEXT if isinstance(body, str) else JSON
        codec = self._codecs.get(content_type)
        if codec is None:
            if isinstance(body, str):
                return _to_text(body), content_type
            raise EncodeError(
                f"no codec is registered for {content_type!r}, "
                f"and {type(body).__name__} is not bytes"
            )
        try:
            return codec.encode(body), content_type
        except EncodeError:
            raise
        except Exception as error:
            raise EncodeError(
                f"a {type(body).__name__} cannot be made {content_type}: {error}"
            ) from error

    def decode(self, body: bytes, content_type: str = "", kind: Any = Any) -> Any:
        """Return what a body holds, as a value of ``kind``.

        Raises:
            DecodeError: It holds no such value.
        """
        if kind is bytes:
            return body
        codec = self._codecs.get(content_type)
        if codec is None:
            if kind is Any or kind is object:
                return body
            if content_type in RAW or kind is str:
                codec = self._codecs[TEXT if kind is str else JSON]
            else:
                raise DecodeError(f"no codec is registered for {content_type!r}")
        try:
            return codec.decode(body, kind)
        except Exception as error:
            wanted = getattr(kind, "__name__", str(kind))
            raise DecodeError(f"the body is no {wanted}: {error}") from error


def _to_text(body: object) -> bytes:
    if not isinstance(body, str):
        raise EncodeError(f"a {type(body).__name__} is no text")
    return body.encode()


def _from_text(body: bytes, kind: Any) -> object:
    if kind in {str, Any, object}:
        return body.decode()
    return _from_json(body, kind)


def _plain(value: object) -> object:
    """Return what msgspec can encode instead of a pydantic model."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} is not supported")
    plain: object = dump(mode="json")
    return plain


_json: Final = msgspec.json.Encoder(enc_hook=_plain)
_msgpack: Final = msgspec.msgpack.Encoder(enc_hook=_plain)


def _to_json(body: object) -> bytes:
    dump = getattr(body, "model_dump_json", None)
    if dump is not None:
        text: str = dump()
        return text.encode()
    return _json.encode(body)


def _to_msgpack(body: object) -> bytes:
    return _msgpack.encode(body)


def _from_json(body: bytes, kind: Any) -> object:
    if kind is str:
        return body.decode()
    validate = getattr(kind, "model_validate_json", None)
    if validate is not None:
        value: object = validate(body)
        return value
    return _json_decoder(kind).decode(body)


def _from_msgpack(body: bytes, kind: Any) -> object:
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        value: object = validate(msgspec.msgpack.decode(body))
        return value
    return _msgpack_decoder(kind).decode(body)


def _model(kind: Any, value: object) -> object:
    """Decode a type that msgspec does not know: a pydantic model within another type."""
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise NotImplementedError(f"{kind} is not supported")
    made: object = validate(value)
    return made


@functools.lru_cache(maxsize=1024)
def _json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(Any if kind is object else kind, dec_hook=_model)


@functools.lru_cache(maxsize=1024)
def _msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(Any if kind is object else kind, dec_hook=_model)
