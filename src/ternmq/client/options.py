"""What a client is told when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ternmq.client.address import Address
from ternmq.client.validation import length_of, seconds_of

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(slots=True, frozen=True, init=False)
class Options:
    """Settings of a client. Times are seconds, or are given as timedeltas.

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
    app: str
    token: str
    timeout: float
    connect_timeout: float
    buffer_bytes: int
    batch_bytes: int
    batch_rows: int
    window_bytes: int
    max_processing_time: float
    drain_timeout: float
    first_backoff: float
    longest_backoff: float

    def __init__(
        self,
        *,
        address: Address,
        app: str = "",
        token: str = "",
        timeout: float | timedelta = 10.0,
        connect_timeout: float | timedelta = 5.0,
        buffer_bytes: int = 64 * MIB,
        batch_bytes: int = 256 * KIB,
        batch_rows: int = 4096,
        window_bytes: int = 4 * MIB,
        max_processing_time: float | timedelta = 600.0,
        drain_timeout: float | timedelta = 30.0,
        first_backoff: float | timedelta = 0.05,
        longest_backoff: float | timedelta = 2.0,
    ) -> None:
        """Times are seconds or timedeltas.

        Raises:
            InvalidRequest: A time cannot be; the text names the argument.
        """
        put = object.__setattr__
        put(self, "address", address)
        put(self, "app", app)
        put(self, "token", token)
        put(self, "timeout", length_of("timeout", timeout))
        put(self, "connect_timeout", length_of("connect_timeout", connect_timeout))
        put(self, "buffer_bytes", buffer_bytes)
        put(self, "batch_bytes", batch_bytes)
        put(self, "batch_rows", batch_rows)
        put(self, "window_bytes", window_bytes)
        longest = length_of("max_processing_time", max_processing_time)
        put(self, "max_processing_time", longest)
        drain = seconds_of("drain_timeout", drain_timeout)
        put(self, "drain_timeout", drain and length_of("drain_timeout", drain))
        put(self, "first_backoff", seconds_of("first_backoff", first_backoff))
        put(self, "longest_backoff", seconds_of("longest_backoff", longest_backoff))

    def __repr__(self) -> str:
        return f"Options({self.address}, app={self.app!r}, token={'***' if self.token else ''!r})"
