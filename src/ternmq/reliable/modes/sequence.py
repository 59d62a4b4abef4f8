"""``sequence``: messages that are the steps of one orderly session."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from types import TracebackType
from typing import Generic, Self, TypeVar, overload

import ternmq
import ternmq.sync
from ternmq.client.content.message import Message, Receipt
from ternmq.client.content.validation import check_id, check_message, check_size, check_topic
from ternmq.client.declaration.topic import Topic
from ternmq.model.errors import EncodeError, InvalidRequest
from ternmq.reliable.modes.numbering import (
    MOST_NAME_BYTES,
    MOST_STEPS,
    OWN,
    Numbered,
    headers_of,
)
from ternmq.reliable.modes.options import check_client, check_ordered
from ternmq.reliable.modes.single import Properties, Single

C = TypeVar("C", bound=ternmq.Client | ternmq.sync.Client)


class _Block(Single, Generic[C]):
    """What both kinds of blocks have."""

    what = "sequence"
    recipe = "use it as `async with sequence(client, ...) as steps` (`with` for ternmq.sync)"

    def __init__(self, client: C, topic: str | Topic, session: str, within: object | None) -> None:
        super().__init__()
        self._client = client
        self._topic = topic
        self._session = session
        self._within = within
        self._added: list[tuple[bytes, Properties]] = []
        self._receipts: list[Receipt] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of session {self._session!r}, {len(self)} steps>"

    def __len__(self) -> int:
        """Return the number of steps that were added."""
        return len(self._added)

    def __bool__(self) -> bool:
        return True  # also without steps

    @property
    def session(self) -> str:
        """Name of the session."""
        return self._session

    @property
    def receipts(self) -> list[Receipt]:
        """The receipts of the steps, in order; empty before the end of the block."""
        return list(self._receipts)

    def add(
        self,
        value: object,
        *,
        key: str = "",
        tag: str = "",
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
    ) -> int:
        """Add a step, and return its number, from 1. Nothing is sent; no I/O.

        Args:
            value: Body of its message: bytes, str, or a value that a codec can encode.
            key: Key of its message.
            tag: Tag of its message.
            headers: Headers of its message.
            content_type: Type of the body; by default derived from the body's type.

        Raises:
            EncodeError, InvalidRequest: Nothing was added: a value is not valid, the session has
                10,000 steps, or the block is not open.
        """
        self._check_open()
        if isinstance(value, Message):
            raise EncodeError("a Message goes to send_many; add takes its body, key= ...")
        if len(self._added) >= MOST_STEPS:
            raise InvalidRequest(f"a session has at most {MOST_STEPS:,} steps")
        body, content_type = self._client.codecs.encode(value, content_type)
        added = Properties(key, tag, content_type, {} if headers is None else headers)
        check_message(added)
        taken = [name for name in OWN if name in added.headers]
        if taken:
            raise InvalidRequest(f"header {taken[0]} is set by the session")
        added.headers = dict(added.headers)
        self._added.append((body, added))
        return len(self._added)

    def _messages(self) -> list[Message]:
        """Return the messages of the session."""
        size = len(self._added)
        return [
            Message(
                body,
                key=one.key,
                ordering_key=self._session,
                tag=one.tag,
                headers={**one.headers, **headers_of(Numbered(self._session, number, size))},
                content_type=one.content_type,
                id=f"{self._session}.{number}",
            )
            for number, (body, one) in enumerate(self._added, 1)
        ]


class SequenceBlock(_Block[ternmq.Client]):
    """Gathers the steps of an orderly session: an async context manager, made by ``sequence``."""

    async def __aenter__(self) -> Self:
        self._enter_once()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None and self._added:
                self._check_open()
                self._receipts = await self._client.send_many(
                    self._topic, self._messages(), within=self._within
                )
        finally:
            self._left = True


class BlockingSequenceBlock(_Block[ternmq.sync.Client]):
    """``SequenceBlock`` for ``ternmq.sync``: a context manager (``with``), made by ``sequence``."""

    def __enter__(self) -> Self:
        self._enter_once()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None and self._added:
                self._check_open()
                self._receipts = self._client.send_many(
                    self._topic, self._messages(), within=self._within
                )
        finally:
            self._left = True


@overload
def sequence(
    client: ternmq.Client,
    topic: str | Topic,
    *,
    id: str | None = None,
    within: object | None = None,
) -> SequenceBlock: ...


@overload
def sequence(
    client: ternmq.sync.Client,
    topic: str | Topic,
    *,
    id: str | None = None,
    within: object | None = None,
) -> BlockingSequenceBlock: ...


def sequence(
    client: ternmq.Client | ternmq.sync.Client,
    topic: str | Topic,
    *,
    id: str | None = None,  # noqa: A002
    within: object | None = None,
) -> SequenceBlock | BlockingSequenceBlock:
    """Return a block whose messages are the steps of one session, done in order by ``Steps``.

    ::

        async with Session() as session, session.begin():
            async with sequence(client, "transfers", within=session) as steps:
                steps.add({"debit": 500})
                steps.add({"credit": 500})

    The end of the block sends one message for each step, with the session's name as its ordering
    key, and with session, number and size in its headers. An exception in the block sends nothing,
    and so does a block without steps.

    ``within`` a transaction, either all messages are written or none. Without it they are sent as
    ``send_many`` sends them: if some cannot be sent, ``PartialSendError`` is raised, and a consumer
    waits for those that are missing. Repeat the block with the same ``id`` and the same steps:
    those that are stored are not stored again.

    Args:
        client: With a client of ``ternmq.sync``, the block is a ``with``.
        topic: The topic; it must be ordered.
        id: Name of the session, at most 120 bytes; None: a random one. The messages have the ids
            ``<id>.1``, ``<id>.2`` and so on. A consumer does the steps of one name once.
        within: The transaction that the messages belong to, as ``within=`` of ``Client.send``.

    Raises:
        InvalidName, InvalidRequest: A value is not valid; or the topic is a ``Topic`` without
            ``ordered=True``.
    """
    check_client(client)
    if isinstance(topic, str):
        check_topic(topic)
    check_ordered(topic)
    if id is not None:
        check_size("id", len(check_id("id", id).encode()), MOST_NAME_BYTES)
    client.stores.check(within)
    session = secrets.token_hex(12) if id is None else id
    if isinstance(client, ternmq.sync.Client):
        return BlockingSequenceBlock(client, topic, session, within)
    return SequenceBlock(client, topic, session, within)
