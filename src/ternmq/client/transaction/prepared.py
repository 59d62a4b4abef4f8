"""What a checker gets: a transaction that is undecided, and its messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeVar

from ternmq.client.connection.session import Session
from ternmq.client.consumer.chunk import Chunk, StoredMessage, chunks_of
from ternmq.client.content.codecs import Codecs
from ternmq.client.process import pickling
from ternmq.model.errors import ProtocolError
from ternmq.model.transaction_ids import transaction_id
from ternmq.record.fact import messages
from ternmq.record.fact.header import HEADER, HEADER_BYTES
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command

T = TypeVar("T")

FETCHED_BYTES: Final = 4 << 20
"""Bytes of records that are fetched before the checker is called."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ALL: Final = bodies.Run(0, 1 << 65, 1, 1)
"""A run that has every row; those of a transaction have no offsets."""
_NOT_PICKLED: Final = "{} cannot be pickled or copied: it belongs to the client that was asked"


class PreparedMessage(StoredMessage):
    """A message of a transaction that is undecided: it has no offset yet."""

    _not_pickled = _NOT_PICKLED.format("a message of a transaction")

    __slots__ = ()

    def __init__(self, topic: str, chunk: Chunk, index: int, codecs: Codecs) -> None:
        self._topic = topic
        self._chunk = chunk
        self._index = index
        self._codecs = codecs

    def __repr__(self) -> str:
        return f"<PreparedMessage {self.topic} {self.id}>"

    @property
    def queue(self) -> int:
        """The number of its queue; of a message with a due time, only the one asked for."""
        return self._chunk.queue

    @property
    def due_at(self) -> datetime | None:
        """When it is due; None: at the commit."""
        return super().due_at


class Rows:
    """Reads the rows of a transaction. Not thread-safe: call it from the client's loop."""

    def __init__(self, session: Session, codecs: Codecs, number: int) -> None:
        self._session = session
        self._codecs = codecs
        self._number = number

    async def pages(self, most_bytes: int = 0) -> AsyncGenerator[list[PreparedMessage], None]:
        """Yield pages of messages, in the order in which they were prepared.

        Args:
            most_bytes: Most bytes of records of a page; 0: as many as the broker allows.

        Raises:
            UnknownTransaction, TransactionDecided: It is not undecided any more.
        """
        after = 0
        while True:
            asked = bodies.TransactionRead(self._number, after, most_bytes)
            body = await self._session.ask(
                Command.TRANSACTION_READ, bodies.pack_transaction_read(asked)
            )
            page = bodies.unpack_transaction_rows(body)
            names = dict(page.topics)
            yield [
                PreparedMessage(topic, chunk, index, self._codecs)
                for topic, chunk in _chunks(page.records, names)
                for index in range(chunk.count)
            ]
            after = page.next
            if not after:
                return


def _chunks(records: bytes, names: Mapping[int, str]) -> list[tuple[str, Chunk]]:
    """Return the rows of the records of a page, with the names of their topics.

    Raises:
        ProtocolError: The records are damaged.
    """
    found: list[tuple[str, Chunk]] = []
    at = 0
    while at < len(records):
        if at + HEADER_BYTES + messages.PREFIX_BYTES > len(records):
            raise ProtocolError("the answer's records are damaged")
        length = HEADER.unpack_from(records, at)[2]
        topic, queue, *_ = messages.PREFIX.unpack_from(records, at + HEADER_BYTES)
        if length < HEADER_BYTES or topic not in names:
            raise ProtocolError("the answer's records are damaged")
        chunks = chunks_of(queue, records[at : at + length], [_ALL])
        found += [(names[topic], chunk) for chunk in chunks]
        at += length
    return found


class PreparedTransaction(pickling.NotPickled):
    """A transaction that is undecided, for its checker.

    Attributes:
        messages: Its first messages, of up to 4 MiB; ``read`` returns all of them.
    """

    _not_pickled = _NOT_PICKLED.format("a transaction")

    def __init__(
        self,
        asked: control.TransactionCheck,
        first: list[PreparedMessage],
        pages: Callable[[], AsyncGenerator[list[PreparedMessage], None]],
    ) -> None:
        self._asked = asked
        self._pages = pages
        self.messages = first

    def __repr__(self) -> str:
        return f"<PreparedTransaction {self.id} of {self.group}, attempt {self.attempt}>"

    @property
    def id(self) -> str:
        """Its id, such as ``t-1f3``."""
        return transaction_id(self._asked.transaction)

    @property
    def group(self) -> str:
        """Its producer group."""
        return self._asked.group

    @property
    def query_id(self) -> str:
        """The application's name for what it is about, "" without one."""
        return self._asked.query_id

    @property
    def attempt(self) -> int:
        """The number of this question; 1 is the first."""
        return self._asked.attempt

    @property
    def topics(self) -> list[str]:
        """The topics of its messages."""
        return list(self._asked.topics)

    @property
    def rows(self) -> int:
        """Number of its messages."""
        return self._asked.rows

    @property
    def bytes(self) -> int:
        """Size of its messages at the broker, in bytes."""
        return self._asked.bytes

    async def read(self) -> AsyncGenerator[PreparedMessage, None]:
        """Yield all its messages, in the order in which they were sent.

        Raises:
            UnknownTransaction, TransactionDecided: It was decided meanwhile.
        """
        if len(self.messages) == self.rows:
            for message in self.messages:
                yield message
            return
        async for page in self._pages():
            for message in page:
                yield message
