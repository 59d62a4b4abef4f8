"""The body of a batch session: one message that contains several items.

All items of a session arrive, or none, because they are one message. ``ternmq.reliable.batch``
makes such messages. ``docs/reference/items.md`` has the same text for authors of other clients::

    content type    application/vnd.ternmq.items+msgpack
    body            [session, size, [item, ...]]                           msgpack
    item            [key, tag, content_type, headers, body]

    session         str      name of the session, 1 byte or more
    size            int      number of the items, 1 or more
    key, tag        str      "" without one
    content_type    str      how the item's body is encoded; "" for bare bytes
    headers         map      str to str
    body            bin

Nothing follows the array, and no array has more or fewer elements. A body of another form, or with
another number of items than its size, is not decoded at all. An item is not a session itself.
"""

from __future__ import annotations

import types
import typing
from collections import abc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Generic, TypeVar, overload

import msgspec

from ternmq.model.errors import DecodeError
from ternmq.model.printing import printable
from ternmq.model.words import counted

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ITEMS: Final = "application/vnd.ternmq.items+msgpack"
"""Content type of version 1, which never changes.

Another form gets a content type of its own (``application/vnd.ternmq.items.v2+msgpack``), with its
text here and in ``docs/reference/items.md``, a golden file beside ``tests/golden/items_v1.bin``, a
decoder for both, and a release in which consumers read the new form before producers write it.
"""

_MOST_SHOWN: Final = 80
"""Characters of a session's name in an error."""


class Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """An item as it is stored."""

    key: str
    tag: str
    content_type: str
    headers: dict[str, str]
    body: bytes


class Session(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """The body of a session as it is stored."""

    session: str
    size: int
    rows: list[Row]


@dataclass(slots=True, frozen=True)
class Item(Generic[T_co]):
    """An item of a batch session.

    Attributes:
        value: Its body, decoded.
        key: Its key, "" without one.
        tag: Its tag, "" without one.
        headers: Its headers.
        content_type: Its content type, "" for bare bytes.
    """

    value: T_co
    key: str = ""
    tag: str = ""
    headers: typing.Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""


class Items(Sequence[T_co]):
    """The values of a batch session, all of them, in the order in which they were added.

    As the annotation of a handler's body (``Items[Order]``), or the type in ``delivery.decode``.

    Args:
        session: Name of the session.
        entries: Its items.
    """

    __slots__ = ("_entries", "_session", "_values")

    def __init__(self, session: str, entries: Iterable[Item[T_co]]) -> None:
        self._session = session
        self._entries = tuple(entries)
        self._values = tuple(one.value for one in self._entries)

    @property
    def session(self) -> str:
        """Name of the session, unique: a message that is delivered again has the same."""
        return self._session

    @property
    def size(self) -> int:
        """Number of its items, as its sender stated it; the same as ``len``."""
        return len(self._entries)

    @property
    def keys(self) -> list[str]:
        """The key of each item, "" without one."""
        return [one.key for one in self._entries]

    @property
    def entries(self) -> Sequence[Item[T_co]]:
        """The items with their properties."""
        return self._entries

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, place: int) -> T_co: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[T_co]: ...

    def __getitem__(self, place: int | slice) -> T_co | Sequence[T_co]:
        return self._values[place]

    def __repr__(self) -> str:
        return f"<Items of session {self._session!r:.{_MOST_SHOWN}}, {self.size}>"


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Session)


def pack_item(row: Row) -> bytes:
    """Return the bytes of an item."""
    return _encoder.encode(row)


def pack(session: str, items: Sequence[bytes]) -> bytes:
    """Return the body of a session, given the bytes of its items."""
    return _encoder.encode((session, len(items), [msgspec.Raw(one) for one in items]))


def packed_bytes(session: str, count: int, items_bytes: int) -> int:
    """Return the length of ``pack(session, items)`` for so many items of so many bytes in all."""
    array = 1 if count < 16 else 3 if count < 1 << 16 else 5
    return len(_encoder.encode((session, count, []))) - 1 + array + items_bytes


def unpack(body: bytes) -> Session:
    """Return a session, complete.

    Raises:
        DecodeError: The bytes are not a session, or one that has not as many items as it states.
    """
    try:
        found = _decoder.decode(body)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"the body is not a batch session: {error}") from error
    count = len(found.rows)
    if found.size != count:
        raise DecodeError(
            f"the body is not a batch session: {shown(found)} states {counted(found.size, 'item')} "
            f"and has {count}"
        )
    if not found.session or not count:
        raise DecodeError("the body is not a batch session: it has no name, or no items")
    for number, row in enumerate(found.rows, 1):
        if row.content_type == ITEMS:
            raise DecodeError(
                f"the body is not a batch session: item {number} of {shown(found)} is a session"
            )
    return found


def shown(session: Session) -> str:
    """Return what errors call a session."""
    return f"session {printable(session.session[:_MOST_SHOWN])}"


@dataclass(slots=True, frozen=True)
class Form:
    """How a type holds the items of a session.

    Attributes:
        element: Type of each item's value.
        kind: Type of the whole: ``Items``, ``list`` or ``tuple``.
        limits: The whole as a type with the limits on its length; None without limits.
    """

    element: Any
    kind: type
    limits: Any = None

    def made(self, session: str, entries: Sequence[Item[Any]]) -> object:
        """Return the whole.

        Raises:
            msgspec.ValidationError: It has a length that the type does not allow.
        """
        if self.kind is Items:
            return Items(session, entries)
        values = [one.value for one in entries]
        if self.limits is not None:
            msgspec.convert(values, self.limits)
        return values if self.kind is list else tuple(values)


_LISTS: Final = frozenset(
    {list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable, abc.Reversible}
)


def form_of(kind: Any) -> Form | None:
    """Return how a type holds the items of a session; None: it holds no items.

    ``Items`` and ``Items[T]``; ``list[T]``, ``Sequence[T]`` and the like, ``tuple[T, ...]``; a
    union that has one of these lists; ``Any`` and ``object``, which are lists of such values.
    """
    while type(kind).__name__ == "TypeAliasType":  # in `typing` from 3.12 on
        kind = kind.__value__
    if kind is Any or kind is object:
        return Form(Any, list)
    origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
    element = arguments[0] if arguments else Any
    if origin is Annotated:
        found = form_of(element)
        limits = tuple(one for one in arguments[1:] if isinstance(one, msgspec.Meta))
        if found is None or not limits or found.kind is Items:
            return found
        return Form(found.element, found.kind, Annotated[(list[Any], *limits)])
    if origin is Items:
        return Form(element, Items)
    if origin in _LISTS:
        return Form(element, list)
    if origin is tuple and (not arguments or arguments[1:] == (Ellipsis,)):
        return Form(element, tuple)
    if origin in {typing.Union, types.UnionType}:
        forms = [form for one in arguments if (form := form_of(one)) and form.kind is not Items]
        return forms[0] if forms else None
    return None


def is_items(kind: Any) -> bool:
    """Return whether a type is ``Items``, which holds the items of a session and nothing else."""
    form = form_of(kind)
    return form is not None and form.kind is Items
