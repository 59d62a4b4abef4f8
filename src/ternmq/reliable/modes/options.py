"""Arguments of ``Client.send`` that are passed on."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict

import ternmq
import ternmq.sync
from ternmq.client.client import session_of
from ternmq.client.connection.session import Session
from ternmq.client.content.message import Queue
from ternmq.client.declaration.topic import Topic
from ternmq.model.errors import InvalidRequest


class SessionOptions(TypedDict, total=False):
    """How the message of a batch session is sent; see ``ternmq.Client.send``."""

    key: str
    ordering_key: str
    tag: str
    headers: Mapping[str, str] | None
    queue: Queue | None
    deliver_after: float | timedelta | None
    deliver_at: datetime | None
    priority: int
    expires_after: float | timedelta | None
    timeout: float | timedelta | None


class ThrottledOptions(TypedDict, total=False):
    """How a throttled message is sent; see ``ternmq.Client.send``."""

    key: str
    ordering_key: str
    tag: str
    headers: Mapping[str, str] | None
    content_type: str
    id: str | None
    queue: Queue | None
    priority: int
    expires_after: float | timedelta | None
    timeout: float | timedelta | None


def passed_on(
    what: str, known: type, options: Mapping[str, object], within: object | None
) -> dict[str, Any]:
    """Return the arguments to pass to ``send``; ``within`` is one of them only if it is given.

    Args:
        what: The function that got them.
        known: The ``TypedDict`` of those that it takes.
        options: What it got.
        within: The transaction that the send belongs to; None: none was given.

    Raises:
        TypeError: One of them is not known.
    """
    names = known.__annotations__
    unknown = [name for name in options if name not in names]
    if unknown:
        raise TypeError(f"{what} takes no argument {unknown[0]!r}: it takes {', '.join(names)}")
    return dict(options) if within is None else {**options, "within": within}


def check_client(client: object) -> None:
    """Check that a client is one.

    Raises:
        InvalidRequest: It is not.
    """
    if not isinstance(client, ternmq.Client | ternmq.sync.Client):
        raise InvalidRequest(
            f"a client is made by ternmq.connect or ternmq.sync.connect; this is of type "
            f"{type(client).__name__}"
        )


def session_behind(client: ternmq.Client | ternmq.sync.Client) -> Session:
    """Return the session of a client: what it knows about the broker. Callable from any thread.

    Raises:
        ClientClosed: It is a blocking client that was closed.
    """
    return session_of(client.reach()[1] if isinstance(client, ternmq.sync.Client) else client)


def check_ordered(topic: str | Topic) -> None:
    """Check that a topic keeps an order, if that is said here. No I/O.

    Raises:
        InvalidRequest: It is a ``Topic`` that is not ordered.
    """
    if isinstance(topic, Topic) and not topic.ordered:
        raise InvalidRequest(
            f"orderly sessions need an ordered topic: Topic({topic.name!r}, ordered=True)"
        )
