"""Counts of a client's own work."""

from __future__ import annotations

from dataclasses import dataclass

CONNECTIONS: int = 2
"""Most connections of a client at one time: the shared one, and that of the keeper, made when the
first lease needs to be extended."""


@dataclass(slots=True, frozen=True)
class ClientStats:
    """What a client did since it was made; see ``Client.stats``.

    Attributes:
        connections_open: Now: at most 2, the second one only to extend leases.
        connections_opened: So far; all requests share one as long as it lasts.
        reconnects: Of these, those that replaced one that was lost.
        requests: Asked of the broker, heartbeats included.
        sends: Messages that left, each counted once.
        batches: That they left in, each counted once.
        resends: Batches that left once more, after a lost connection or a refusal that may pass.
        stored: Messages that the broker answered as stored.
        failed: Messages that were given up.
        bytes_sent: Written to connections.
        bytes_received: Read from connections.
    """

    connections_open: int
    connections_opened: int
    reconnects: int
    requests: int
    sends: int
    batches: int
    resends: int
    stored: int
    failed: int
    bytes_sent: int
    bytes_received: int


class Traffic:
    """Counts of successive connections of one kind. One thread only."""

    __slots__ = ("bytes_received", "bytes_sent", "opened", "requests")

    def __init__(self) -> None:
        self.opened = 0
        self.requests = 0
        self.bytes_sent = 0
        self.bytes_received = 0
