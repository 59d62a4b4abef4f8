"""Bodies: encoding of values to bytes, and decoding of bytes to the types of annotations.

The content type of a body shows how it was encoded::

    bytes, bytearray, memoryview                            (none)
    str                                                     text/plain
    None, bool, int, float, list, tuple, dict, dataclass,
    msgspec.Struct, pydantic model, datetime, UUID, ...     application/json

A pydantic model is written with its aliases if its class reads them, so that the same class can
decode it: ``models``.

JSON has no NaN and no infinity: a body that contains one is refused, not changed.

With ``content_type="application/msgpack"`` the last group is encoded as msgpack. Other types are
registered with ``Codecs.register``. A body without content type is decoded as the annotation
requires: bytes as they are, str as UTF-8, everything else as JSON.

A batch session (``items``) is decoded to the list of its items, each by its own content type.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
import msgspec.inspect

from ternmq.client.content.defaults import CompletingDecoder, Decoder, classes_in
from ternmq.client.content.items import ITEMS, Item, Items, form_of, is_items, shown, unpack
from ternmq.client.content.models import UnionDecoder, dumped_with
from ternmq.client.content.reasons import safe_str
from ternmq.client.content.validation import text
from ternmq.model.errors import DecodeError, EncodeError, InvalidRequest, hinted
from ternmq.model.words import article, counted

T = TypeVar("T")

TEXT: Final = "text/plain"
JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
RAW: Final = ("", "application/octet-stream")

Encode = Callable[[Any], bytes]
"""Returns the bytes of a body."""
Decode = Callable[[bytes, Any], object]
"""Returns the value of a body, given its bytes and the wanted type (``Any``: any type)."""

_RAW_TYPES: Final = (bytes, bytearray, memoryview)
_BUILT_IN: Final = 3
"""Codecs that every client has."""


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
        """Encode and decode bodies of a content type with these functions.

        Args:
            content_type: It is stored with each message. The codec of a known content type, such as
                ``application/json``, is replaced.
            encode: Called with the body; returns its bytes. A body of bytes is sent as it is. An
                exception becomes an ``EncodeError`` of that send.
            decode: Called with the bytes and the type in the handler's annotation or in
                ``Delivery.decode`` (``Any`` without one); returns the value. An exception becomes a
                ``DecodeError``, and a handler's message a dead letter. Not called if ``bytes`` are
                requested.

        Both may be called in any thread that uses the client.

        Raises:
            InvalidRequest: The content type is not a str, empty or not ASCII, or a function cannot
                be called with these arguments.
        """
        if not text("content_type", content_type) or not content_type.isascii():
            raise InvalidRequest(f"{content_type!r} is not a content type")
        _check_callable("encode", encode, "(body)", 1)
        _check_callable("decode", decode, "(body, kind)", 2)
        self._codecs[content_type] = _Codec(encode, decode)

    def encode(self, body: object, content_type: str = "") -> tuple[bytes, str]:
        """Return (bytes, content type) of a body.

        Raises:
            EncodeError: It cannot be encoded as that content type.
            InvalidRequest: The content type is not a str.
        """
        if isinstance(body, _RAW_TYPES):
            return bytes(body), content_type
        if content_type == "":  # other values that count as false are no content types
            content_type = TEXT if isinstance(body, str) else JSON
        elif content_type.__class__ is not str:
            text("content_type", content_type)
        codec = self._codecs.get(content_type)
        if codec is None:
            if isinstance(body, str):
                return _to_text(body), content_type
            raise EncodeError(
                f"no codec is registered for {content_type!r}, "
                f"and {type(body).__name__} is not bytes"
            )
        try:
            encoded = codec.encode(body)
            if encoded.__class__ is not bytes:
                encoded = _as_bytes(encoded)
            return encoded, content_type
        except EncodeError:
            raise
        except Exception as error:
            raise EncodeError(
                f"a body of type {type(body).__name__} cannot be encoded as {content_type}: "
                f"{safe_str(error)}"
            ) from error

    def decode(self, body: bytes, content_type: str = "", kind: Any = Any) -> Any:
        """Return the value of a body, as a value of ``kind``.

        Raises:
            DecodeError: The body cannot be decoded as that type.
        """
        if kind is bytes:
            return body
        codec = self._codecs.get(content_type)
        if codec is None:
            if content_type == ITEMS:
                return self._decode_items(body, kind)
            if kind is Any or kind is object:
                return body
            if content_type in RAW or kind is str:
                codec = self._codecs[TEXT if kind is str else JSON]
            else:
                raise DecodeError(f"no codec is registered for {content_type!r}")
        try:
            return codec.decode(body, kind)
        except Exception as error:
            wanted = f"a valid {getattr(kind, '__name__', str(kind))}"
            if kind is Any or kind is object:
                wanted = f"valid {content_type}"
            raise DecodeError(f"the body is not {wanted}: {_told(error)}") from error

    def _decode_items(self, body: bytes, kind: Any) -> object:
        """Return the items of a batch session, each decoded by its own content type.

        Raises:
            DecodeError: It is not a complete session, an item cannot be decoded, or the type does
                not hold items.
        """
        session = unpack(body)
        form = form_of(kind)
        if form is None:
            raise hinted(
                DecodeError(
                    f"the message is batch {shown(session)} of {counted(session.size, 'item')}, "
                    f"not a valid {_shown(kind)}"
                ),
                "take it as a list of the type, such as list[Order]",
            )
        entries: list[Item[Any]] = []
        for number, row in enumerate(session.rows, 1):
            try:
                value = self.decode(row.body, row.content_type, form.element)
            except DecodeError as error:
                raise DecodeError(
                    f"item {number} of {session.size} of {shown(session)}: {error.args[0]}"
                ) from error.__cause__
            entries.append(Item(value, row.key, row.tag, row.headers, row.content_type))
        try:
            return form.made(session.session, entries)
        except msgspec.ValidationError as error:
            raise DecodeError(f"{shown(session)} is not a valid {_shown(kind)}: {error}") from error

    def decode_at(
        self, place: tuple[str, int, int], body: bytes, content_type: str, kind: type[T]
    ) -> T:
        """Return the body of the message at a topic, queue and offset, as ``decode`` does.

        Raises:
            DecodeError: It cannot be decoded; the text names the message.
            TypeError: No body can be decoded as that type.
        """
        try:
            value: T = self.decode(body, content_type, kind)
        except DecodeError as error:
            self.check(kind)  # the message is not to blame if nothing can be decoded as that
            topic, queue, offset = place
            located = DecodeError(f"message {queue}/{offset} of {topic}: {error.args[0]}")
            located.hint = error.hint
            raise located from error.__cause__
        return value

    def check(self, kind: Any) -> None:
        """Check that bodies can be decoded as values of ``kind``.

        Raises:
            TypeError: They cannot: no codec knows the type, or a part of it.
        """
        form = form_of(kind)
        if form is not None and form.kind is Items:
            kind = form.element
        if len(self._codecs) > _BUILT_IN or kind is object:
            return  # a codec of the application may support any type
        unknown: type | None = None
        try:
            if hasattr(kind, "model_validate_json"):
                if not getattr(kind, "__pydantic_complete__", True):
                    kind.model_rebuild()
            else:
                decoder = _json_decoder(kind)
                if not isinstance(decoder, UnionDecoder):
                    unknown = next(_unknown(msgspec.inspect.type_info(kind), set()), None)
        except Exception as error:
            # Annotations of the type are evaluated here: they may raise any error.
            raise TypeError(f"{_shown(kind)} cannot be decoded: {error!s:.500}") from error
        if unknown is not None:
            raise TypeError(
                f"{article(_shown(unknown))} cannot be decoded: make it a dataclass, a "
                "msgspec.Struct or a pydantic model, or register a codec"
            )


def _check_callable(name: str, function: object, wanted: str, arguments: int) -> None:
    """Raise InvalidRequest unless a function can be called with that number of arguments."""
    if not callable(function):
        raise InvalidRequest(f"{name} is a function {name}{wanted}, not {function!r}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # written in C, without a signature
    try:
        signature.bind(*[None] * arguments)
    except TypeError as error:
        raise InvalidRequest(
            f"{name} is called as {name}{wanted}, and the given function takes {signature}"
        ) from error


def _shown(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) else f"{kind!s:.200}"


def _unknown(found: object, seen: set[int]) -> Iterator[type]:
    """Yield the classes in a type that have no decoder here."""
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, msgspec.inspect.CustomType):
        if not hasattr(found.cls, "model_validate"):
            yield found.cls
    elif isinstance(found, tuple):
        for one in found:
            yield from _unknown(one, seen)
    elif isinstance(found, msgspec.inspect.Type | msgspec.inspect.Field):
        for name in found.__struct_fields__:
            yield from _unknown(getattr(found, name), seen)


def _as_bytes(encoded: object) -> bytes:
    """Return what a codec returned as bytes."""
    if not isinstance(encoded, _RAW_TYPES):
        raise TypeError(f"its codec returned {type(encoded).__name__}, not bytes")
    return bytes(encoded)


def _to_text(body: object) -> bytes:
    if not isinstance(body, str):
        raise EncodeError(f"a body of type {type(body).__name__} is not text")
    return body.encode()


def _from_text(body: bytes, kind: Any) -> object:
    text = body.decode()
    if kind in {str, Any, object}:
        return text
    if not hasattr(kind, "model_validate_json"):
        decoder = _json_decoder(kind)
        # A text need not be annotated as ``str``: a Literal, ``str | None``, an id.
        with suppress(ValueError):  # not one of these, but text that contains JSON
            if isinstance(decoder, UnionDecoder):
                return decoder.validate(text)
            value: object = msgspec.convert(text, kind, dec_hook=_model)
            return value
    return _from_json(body, kind)


def _plain(value: object) -> object:
    """Return a value that msgspec can encode in place of a pydantic model."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} is not supported")
    plain: object = dump(mode="json", **dumped_with(value))
    return plain


_json: Final = msgspec.json.Encoder(enc_hook=_plain)
_msgpack: Final = msgspec.msgpack.Encoder(enc_hook=_plain)


def _to_json(body: object) -> bytes:
    dump = getattr(body, "model_dump_json", None)
    encoded: bytes = _json.encode(body) if dump is None else dump(**dumped_with(body)).encode()
    # NaN and infinity are written as null, or by name by a pydantic model with that setting.
    if any(one in encoded for one in (_NULLS if dump is None else _NULLS_AND_NAMES)):
        found = _not_finite(body, "$")
        if found is not None:
            where = "the body" if found == "$" else found
            raise EncodeError(f"JSON cannot represent NaN or infinity, and {where} is one of them")
    return encoded


_NULLS: Final = (b"null",)
_NULLS_AND_NAMES: Final = (b"null", b"NaN", b"Infinity")


def _not_finite(value: object, path: str) -> str | None:
    """Return the path of the first NaN or infinity in a value; None without any."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    if isinstance(value, str | bytes | bytearray | int | None):
        return None
    if isinstance(value, Mapping):
        parts = [(f"{path}.{key}", one) for key, one in value.items()]
    elif isinstance(value, list | tuple | set | frozenset | deque):
        parts = [(f"{path}[{at}]", one) for at, one in enumerate(value)]
    else:
        parts = [(f"{path}.{name}", one) for name, one in _fields(value)]
    for where, one in parts:
        found = _not_finite(one, where)
        if found is not None:
            return found
    return None


def _fields(value: object) -> list[tuple[str, object]]:
    """Return names and values of an object's fields; none if it has no fields."""
    names: Iterable[str] = ()
    if hasattr(value, "model_dump"):
        if getattr(value, "model_config", {}).get("ser_json_inf_nan") == "strings":
            return []  # the model writes them as strings, which is valid JSON
        names = getattr(type(value), "model_fields", ())
    elif isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        names = [field.name for field in getattr(type(value), "__attrs_attrs__", ())]
    return [(name, getattr(value, name, None)) for name in names]


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
    """Decode a type that msgspec does not support: a pydantic model within another type."""
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        if is_items(kind):
            raise ValueError("it is not a batch session")
        raise NotImplementedError(f"{kind} is not supported")
    try:
        made: object = validate(value)
    except ValueError as error:
        raise ValueError(_told(error)) from error  # msgspec adds the path
    return made


def _told(error: Exception) -> str:
    """Return an error's text in one line; pydantic's in msgspec's form: problem and path."""
    listed = getattr(error, "errors", None)
    if not callable(listed) or not hasattr(error, "error_count"):
        return safe_str(error)
    told: list[str] = []
    for one in listed(include_url=False, include_context=False, include_input=False)[:_SHOWN]:
        path = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in one["loc"])
        told.append(f"{one['msg']} - at `${path}`")
    more = error.error_count() - len(told)
    return "; ".join(told) + (f"; and {more} more" if more else "")


_SHOWN: Final = 3
"""Most invalid fields that an error names."""


@functools.lru_cache(maxsize=1024)
def _json_decoder(kind: Any) -> Decoder:
    try:
        decoder = msgspec.json.Decoder(Any if kind is object else kind, dec_hook=_model)
    except TypeError as error:
        return UnionDecoder(kind, error, None)
    return _completing(decoder, kind)


@functools.lru_cache(maxsize=1024)
def _msgpack_decoder(kind: Any) -> Decoder:
    try:
        decoder = msgspec.msgpack.Decoder(Any if kind is object else kind, dec_hook=_model)
    except TypeError as error:
        return UnionDecoder(kind, error, msgspec.msgpack.decode)
    return _completing(decoder, kind)


def _completing(decoder: Decoder, kind: Any) -> Decoder:
    """Return a decoder whose objects have all their fields: ``defaults``."""
    found = classes_in(kind)
    return CompletingDecoder(decoder, found) if found else decoder
