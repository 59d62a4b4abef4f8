"""Holders: blocks whose items are sent as one message each time a session is full."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import ternmq
import ternmq.sync
from ternmq.client.content.items import ITEMS, Row, pack_item
from ternmq.client.content.message import Message, Receipt
from ternmq.client.content.validation import LARGEST_BODY, check_message
from ternmq.client.declaration.topic import Topic
from ternmq.client.handler.unawaited import looked_after
from ternmq.model.errors import EncodeError, InvalidRequest
from ternmq.reliable.modes.filling import Filling, Packed
from ternmq.reliable.modes.options import session_behind
from ternmq.reliable.modes.single import Properties, Single

C = TypeVar("C", bound=ternmq.Client | ternmq.sync.Client)

current: Final[ContextVar[Holder | BlockingHolder | None]] = ContextVar(
    "ternmq.reliable.batch", default=None
)
"""The holder whose block was entered last in this context, perhaps one whose block has ended."""


@dataclass(slots=True, frozen=True)
class Made:
    """How a holder was made.

    Attributes:
        topic: Where its sessions are sent.
        name: Its name; its sessions are ``<name>.0``, ``<name>.1`` and so on.
        size: Number of items of a full session.
        options: Further arguments of the sends.
    """

    topic: str | Topic
    name: str
    size: int
    options: Mapping[str, Any]


class _Holder(Single, Generic[C]):
    """What both kinds of holders have."""

    what = "batch"
    recipe = "use it as `async with batch(client, ...) as holder` (`with` for ternmq.sync)"

    def __init__(self, client: C, made: Made) -> None:
        super().__init__()
        self._client = client
        self._made = made
        self._filling = Filling(made.name, made.size)
        self._receipts: list[Receipt] = []
        self._outer: Holder | BlockingHolder | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of session {self.session!r}, {len(self)} items>"

    def __len__(self) -> int:
        """Return the number of items that are not sent yet."""
        return len(self._filling)

    def __bool__(self) -> bool:
        return True  # also without items

    @property
    def client(self) -> C:
        """The client that sends its sessions."""
        return self._client

    @property
    def outer(self) -> Holder | BlockingHolder | None:
        """The holder that was the current one before its block; None: there was none."""
        return self._outer

    @property
    def session(self) -> str:
        """Name of the session that the next item belongs to."""
        return self._filling.session

    @property
    def receipts(self) -> list[Receipt]:
        """The receipts of the sessions that were sent, in order."""
        return list(self._receipts)

    def _enter(self, holder: Holder | BlockingHolder) -> None:
        """Become the current holder; it is given once more, as what it is.

        Raises:
            InvalidRequest: It was entered before.
        """
        self._enter_once()
        self._outer = current.get()
        current.set(holder)

    def _leave(self) -> None:
        """Take no more items; the outer holder is the current one again."""
        self._left = True
        innermost = current.get()
        if innermost is not None and innermost is self:  # not if it is left in another context
            current.set(self._outer)

    def _packed(
        self,
        value: object,
        key: str,
        tag: str,
        headers: Mapping[str, str] | None,
        content_type: str,
    ) -> bytes:
        """Return the bytes of an item.

        Raises:
            EncodeError, InvalidRequest: It cannot be an item, or the block is not open.
        """
        self._check_open()
        if isinstance(value, Message):
            raise EncodeError("a Message goes to send_many; add takes its body, key= ...")
        body, content_type = self._client.codecs.encode(value, content_type)
        if content_type == ITEMS:
            raise InvalidRequest("an item of a batch session cannot be a session itself")
        properties = Properties(key, tag, content_type, {} if headers is None else headers)
        check_message(properties)
        return pack_item(Row(key, tag, content_type, dict(properties.headers), body))

    def _put(self, item: bytes) -> None:
        """Add an item to the session that fills. Raises as ``Filling.add``."""
        welcome = session_behind(self._client).welcome
        self._filling.add(item, LARGEST_BODY if welcome is None else welcome.body_bytes)

    def _arguments(self, packed: Packed) -> dict[str, Any]:
        """Return the arguments of a session's send, besides topic and body."""
        return {"id": packed.name, "content_type": ITEMS, **self._made.options}

    def _sent(self, receipt: Receipt) -> None:
        """Note that the sealed session is stored."""
        self._receipts.append(receipt)
        self._filling.sent()


@looked_after("holder")
class Holder(_Holder[ternmq.Client]):
    """Gathers the items of batch sessions: an async context manager, made by ``batch``, used once.

    Several tasks may use it; their items are added one after the other.
    """

    def __init__(self, client: ternmq.Client, made: Made) -> None:
        super().__init__(client, made)
        self._session = session_behind(client)
        self._lock = asyncio.Lock()

    async def add(
        self,
        value: object,
        *,
        key: str = "",
        tag: str = "",
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
    ) -> None:
        """Add an item. The item that fills the session sends it, and returns when it is stored.

        If that send fails, its error is raised, and the session stays as it is, this item included:
        the next ``add`` or ``flush``, or the end of the block, sends it again under the same name,
        before anything else. If that fails, too, ``add`` has not added its own item.

        Args:
            value: Body of the item: bytes, str, or a value that a codec can encode.
            key: Its key, for the consumer. Look-ups find messages by the key of the message.
            tag: Its tag, for the consumer. Filters use the tag of the message.
            headers: Its headers, for the consumer. Filters use those of the message.
            content_type: Type of the body; by default derived from the body's type.

        Raises:
            MessageTooLarge: The session would be larger than a body that the broker accepts (16 MiB
                as long as the client was never connected). Nothing was added.
            EncodeError, InvalidRequest: Nothing was added: a value is not valid, or the block is
                not open.
            TernMQError: The send of the session failed, as ``Client.send`` says.
        """
        item = self._packed(value, key, tag, headers, content_type)
        async with self._lock:
            self._check_open()
            if self._filling.sealed:
                await self._send()
            self._put(item)
            if self._filling.full:
                await self._send()

    async def flush(self) -> None:
        """Send the items that it has as a session of their own; returns when it is stored.

        Nothing is sent if there are none.

        Raises:
            InvalidRequest: The block is not open.
            TernMQError: The send failed; see ``add``.
        """
        async with self._lock:
            self._check_open()
            await self._send()

    async def _send(self) -> None:
        packed = self._filling.seal()
        if packed is not None:
            arguments = self._arguments(packed)
            self._sent(await self._client.send(self._made.topic, packed.body, **arguments))

    async def __aenter__(self) -> Self:
        self._enter(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            self._leave()


class BlockingHolder(_Holder[ternmq.sync.Client]):
    """``Holder`` for ``ternmq.sync``: a context manager (``with``), made by ``batch``, used once.

    Several threads may use it; their items are added one after the other.
    """

    def __init__(self, client: ternmq.sync.Client, made: Made) -> None:
        super().__init__(client, made)
        self._lock = threading.Lock()

    def add(
        self,
        value: object,
        *,
        key: str = "",
        tag: str = "",
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
    ) -> None:
        """Add an item; see ``Holder.add``."""
        item = self._packed(value, key, tag, headers, content_type)
        with self._lock:
            self._check_open()
            if self._filling.sealed:
                self._send()
            self._put(item)
            if self._filling.full:
                self._send()

    def flush(self) -> None:
        """Send the items that it has as a session of their own; see ``Holder.flush``."""
        with self._lock:
            self._check_open()
            self._send()

    def _send(self) -> None:
        packed = self._filling.seal()
        if packed is not None:
            arguments = self._arguments(packed)
            self._sent(self._client.send(self._made.topic, packed.body, **arguments))

    def __enter__(self) -> Self:
        self._enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self._leave()
