"""Blocking sends that may go into a transaction of a database, in the caller's thread."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Concatenate, ParamSpec, Protocol, cast

from ternmq.client.client import Client as Engine
from ternmq.client.content.message import Message, Receipt
from ternmq.client.declaration.topic import Topic
from ternmq.client.producer.within import Stores
from ternmq.client.sending import copied
from ternmq.sync.facade import Facade
from ternmq.sync.loop_thread import LoopThread

P = ParamSpec("P")


class Writer(Protocol):
    """The blocking client, as far as this module knows it.

    Attributes:
        stores: The databases in which its messages may be written down.
    """

    stores: Stores

    def reach(self) -> tuple[LoopThread, Engine]:
        """Return the loop's thread and the client in that loop. Callable from any thread."""


def sending(
    method: Callable[Concatenate[Facade[Engine], P], Receipt],
) -> Callable[Concatenate[Facade[Engine], P], Receipt]:
    """Return ``send``: it writes within a transaction in the caller's thread, or sends in the loop.

    Args:
        method: The blocking method that sends in the loop.
    """
    call = cast("Callable[..., Receipt]", method)
    make = cast("Callable[..., Message]", Message)  # the arguments of ``send`` are its fields

    @functools.wraps(method)
    def send(self: Writer, topic: str | Topic, body: object, **options: object) -> Receipt:
        within = options.pop("within", None)
        if within is None and not self.stores:
            return call(self, topic, body, **options)
        writing = self.reach()[1].writing
        name, place = writing.place(topic, within)
        if place is None:
            # In the loop the block of the caller would be found again: its context goes along.
            return call(self, name, body, within=False, **options)
        options.pop("timeout", None)
        headers = copied(cast("Mapping[str, str] | None", options.pop("headers", None)))
        message = make(body, headers=headers, **options)
        return writing.one(place, name, message)

    return cast("Callable[Concatenate[Facade[Engine], P], Receipt]", send)
