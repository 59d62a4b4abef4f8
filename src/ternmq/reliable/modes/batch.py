"""``batch``: makes holders, and finds the current one."""

from __future__ import annotations

import secrets
from typing import Any, Final, Unpack, overload

import ternmq
import ternmq.sync
from ternmq.client.content.validation import (
    MAX_ID_BYTES,
    check_id,
    check_positive,
    check_size,
    check_topic,
)
from ternmq.client.declaration.topic import Topic
from ternmq.model.errors import InvalidRequest, hinted
from ternmq.reliable.modes.holders import BlockingHolder, Holder, Made, current
from ternmq.reliable.modes.options import SessionOptions, check_client, passed_on

_MOST_NAME_BYTES: Final = MAX_ID_BYTES - 12
"""The number of a session has room behind the name of its holder."""


class Batch:
    """What ``batch`` is: call it to make a holder."""

    @overload
    def __call__(
        self,
        client: ternmq.Client,
        topic: str | Topic,
        *,
        size: int = 20,
        id: str | None = None,
        within: object | None = None,
        **options: Unpack[SessionOptions],
    ) -> Holder: ...

    @overload
    def __call__(
        self,
        client: ternmq.sync.Client,
        topic: str | Topic,
        *,
        size: int = 20,
        id: str | None = None,
        within: object | None = None,
        **options: Unpack[SessionOptions],
    ) -> BlockingHolder: ...

    def __call__(
        self,
        client: ternmq.Client | ternmq.sync.Client,
        topic: str | Topic,
        *,
        size: int = 20,
        id: str | None = None,  # noqa: A002
        within: object | None = None,
        **options: Unpack[SessionOptions],
    ) -> Holder | BlockingHolder:
        """Return a block that sends its items as one message each time it has ``size`` of them.

        ::

            async with batch(client, "orders", size=20) as holder:
                for order in orders:
                    await holder.add(order, key=f"order-{order.id}")

            @client.handler("orders", group="warehouse")
            async def load(orders: list[Order]) -> None: ...

        The item that fills a session sends it, and the end of the block sends the rest; an
        exception in the block sends nothing of the rest. A session is one message: consumers get
        all of its items, or none. Items that were not sent are lost with the process.

        Args:
            client: With a client of ``ternmq.sync``, the block is a ``with``.
            topic: The topic.
            size: Number of items of a full session.
            id: Name of the holder, at most 116 bytes; None: a random one. Its sessions are named
                ``<id>.0``, ``<id>.1`` and so on. The name of a session is the ``id`` of its
                message: a session that is sent again is stored once, as ``Client.send`` says.
            within: The transaction that the messages belong to, as ``within=`` of ``Client.send``.
            options: ``key``, ``ordering_key``, ``tag``, ``headers``, ``queue``, ``deliver_after``,
                ``deliver_at``, ``priority``, ``expires_after`` and ``timeout`` of each message; see
                ``Client.send``. Times count from when the session is sent.

        Raises:
            InvalidName, InvalidRequest: A value is not valid; others are checked by the first send.
        """
        check_client(client)
        if isinstance(topic, str):
            check_topic(topic)
        check_positive("size", size)
        if id is not None:
            check_size("id", len(check_id("id", id).encode()), _MOST_NAME_BYTES)
        client.stores.check(within)
        arguments = passed_on("batch", SessionOptions, options, within)
        name = secrets.token_hex(12) if id is None else id
        made = Made(topic, name, size, arguments)
        if isinstance(client, ternmq.sync.Client):
            return BlockingHolder(client, made)
        return Holder(client, made)

    @overload
    def current(self) -> Holder: ...

    @overload
    def current(self, client: ternmq.Client) -> Holder: ...

    @overload
    def current(self, client: ternmq.sync.Client) -> BlockingHolder: ...

    def current(self, client: ternmq.Client | ternmq.sync.Client | None = None) -> Any:
        """Return the innermost holder whose block this code is called in.

        Args:
            client: Only holders of this client; None: of any. A type checker takes the result for
                one of ``ternmq.Client`` then: name a client of ``ternmq.sync``.

        Raises:
            InvalidRequest: There is none.
        """
        found = current.get()
        while found is not None and client is not None and found.client is not client:
            found = found.outer
        if found is None:
            raise hinted(
                InvalidRequest("there is no current batch: no block was begun in this context"),
                "call this inside `async with batch(client, ...)`, or pass the holder",
            )
        return found


batch: Final = Batch()
