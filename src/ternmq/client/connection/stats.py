"""Counts of a client's own work."""

from __future__ import annotations

from dataclasses import dataclass

CONNECTIONS: int = 3
"""Most connections of a client at one time: the shared one, that of the keeper, made when the first
lease needs to be extended, and that to a replica, made for the first read from one."""


@dataclass(slots=True, frozen=True)
class ClientStats:
    """Counts of a client since it was made; see ``Client.stats``.

    Attributes:
        connections_open: Open connections: at most 3, the second one only to extend leases, the
            third one only to read from a replica.
        connections_opened: Connections made so far; all requests share one as long as it lasts.
        reconnects: Those among them that replaced a lost one.
        requests: Requests sent to the broker, heartbeats included.
        sends: Messages sent, each counted once.
        batches: Batches they were sent in, each counted once.
        resends: Batches sent again, after a lost connection or a temporary refusal.
        stored: Messages that the broker answered as stored.
        failed: Messages that were given up.
        bytes_sent: Bytes written to connections.
        bytes_received: Bytes read from connections.
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
