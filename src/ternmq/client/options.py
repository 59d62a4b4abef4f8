"""What a client is told when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ternmq.client.address import Address

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(slots=True, frozen=True, kw_only=True)
class Options:
    """Settings of a client. Times are seconds.

    Attributes:
        address: Where the broker is.
        app: The application; empty where the broker asks for none.
        token: Its secret.
        timeout: How long a request may take in all, being sent again included.
        connect_timeout: How long one attempt to connect may take.
        buffer_bytes: So much may wait to be sent or answered; beyond, ``send`` waits and
            ``send_soon`` and ``send_oneway`` raise BufferFull.
        batch_bytes: Bodies and properties in one batch, at most, unless one message is larger.
        batch_rows: Messages in one batch, at most.
        window_bytes: Bytes of sends that may be unanswered; more wait in the client.
        max_processing_time: How long leases are extended; while a handler runs, until it ends.
        drain_timeout: How long a client that stops waits for handlers that run; 0: not at all.
    """

    address: Address
    app: str = ""
    token: str = ""
    timeout: float = 10.0
    connect_timeout: float = 5.0
    buffer_bytes: int = 64 * MIB
    batch_bytes: int = 256 * KIB
    batch_rows: int = 4096
    window_bytes: int = 4 * MIB
    max_processing_time: float = 600.0
    drain_timeout: float = 30.0
    first_backoff: float = 0.05
    longest_backoff: float = 2.0

    def __repr__(self) -> str:
        return f"Options({self.address}, app={self.app!r}, token={'***' if self.token else ''!r})"
