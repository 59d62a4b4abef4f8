"""Checks shared by parked pulls and reads: the longest wait, their number, their ids."""

from __future__ import annotations

from typing import Final

from ternmq.model.errors import Busy, InvalidRequest
from ternmq.server.hub import Hub
from ternmq.server.peer import Peer
from ternmq.wire.session import Request

Key = tuple[Peer, int]
"""Connection and request id."""

MAX_WAIT_MS: Final = 300_000


def wait_us(wait_ms: int) -> int:
    """Return the wait of a request in microseconds.

    Raises:
        InvalidRequest: It is too long.
    """
    if wait_ms > MAX_WAIT_MS:
        raise InvalidRequest(f"wait_ms may be at most {MAX_WAIT_MS}")
    return wait_ms * 1000


def check_id(peer: Peer, request: Request) -> None:
    """Refuse a request with the id of a parked one: that one could not be cancelled any more.

    Raises:
        InvalidRequest: A request with this id is parked.
    """
    if request.id in peer.waiting:
        raise InvalidRequest(f"a request with id {request.id} waits already")


def take_place(hub: Hub, peer: Peer) -> None:
    """Take one of the places for parked requests for a peer's app.

    Raises:
        Busy: Too many requests are parked, in all or of this app.
    """
    if not hub.waiting.take(peer.app):
        places = hub.waiting
        raise Busy(
            f"{places.of(peer.app)} requests of this app wait, {places.taken} of all apps; there"
            f" are {places.limit} places"
        )
