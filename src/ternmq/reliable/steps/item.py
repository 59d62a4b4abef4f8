"""An item of an orderly session: as it comes, and as a step's function receives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ternmq.client.content.codecs import Codecs

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Item:
    """An item as it is stored.

    Attributes:
        number: Its number in the session, from 1.
        id: Id of its message: the application's own, else the broker's.
        key: Key of its message.
        tag: Tag of its message.
        content_type: Type of the body.
        headers: Headers of its message.
        body: Its body.
    """

    number: int
    id: str
    key: str
    tag: str
    content_type: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True, frozen=True)
class SequenceStep:
    """A step of an orderly session, as its function receives it.

    Attributes:
        session: Name of the session.
        number: Its number, from 1.
        size: Number of steps of the session.
        attempt: Which attempt this is, of those that failed or were asked for again; from 1.
        id: Id of its message: the application's own, else the broker's. The same in each attempt,
            and for its undoing: an id for systems outside of the database.
        key: Key of its message.
        tag: Tag of its message.
        content_type: Type of the body.
        headers: Headers of its message.
        body: Its body, as it was sent.
    """

    session: str
    number: int
    size: int
    attempt: int
    id: str
    key: str
    tag: str
    content_type: str
    headers: Mapping[str, str]
    body: bytes
    _codecs: Codecs = field(repr=False, compare=False)

    @property
    def value(self) -> Any:  # noqa: ANN401 - whatever was sent
        """Its body, decoded according to its content type.

        Raises:
            DecodeError: It cannot be decoded.
        """
        return self._codecs.decode(self.body, self.content_type)

    def decode(self, kind: type[T]) -> T:
        """Return its body as a value of a type.

        Raises:
            DecodeError: It cannot be decoded to that type.
        """
        decoded: T = self._codecs.decode(self.body, self.content_type, kind)
        return decoded
