"""Settings of a client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Self

from ternmq.client.connection.address import Address, url_of
from ternmq.client.connection.backoff import Backoff
from ternmq.client.content.validation import (
    check_positive,
    drain_of,
    length_of,
    seconds_of,
    text,
)
from ternmq.model.errors import InvalidRequest
from ternmq.model.specs import check_instance

KIB: Final = 1024
MIB: Final = 1024 * KIB

LONGEST_TOKEN: Final = 256
"""As ``access.tokens.LONGEST``: most characters of a token."""
_MOST_BATCH_BYTES: Final = MIB
"""For a batch of this size there is room in a frame of any broker."""


@dataclass(slots=True, frozen=True, init=False)
class Options:
    """Settings of a client. Times are seconds, or are given as timedeltas.

    Attributes:
        address: Address of the broker; of several, the first.
        addresses: Addresses of the brokers of one broker group, ``address`` first; the client uses
            the one that serves. If their first is not ``address``, only ``address`` is used.
        app: Name of the app; empty if the broker requires none.
        token: Secret of the app.
        timeout: Most time for a request in all, including resending it.
        connect_timeout: Most time for one attempt to connect to an address.
        buffer_bytes: Most bytes that wait to be sent or answered; beyond, ``send`` waits and
            ``send_soon`` and ``send_oneway`` raise BufferFull.
        batch_bytes: Most bytes of bodies and properties in one batch, unless one message is larger;
            at most 1 MiB.
        batch_rows: Most messages in one batch.
        window_bytes: Most bytes of unanswered sends; the rest waits in the client.
        max_processing_time: How long leases are extended; while a handler runs, until it ends.
        drain_timeout: How long a stopping client waits for running handlers; 0: it does not wait.
        instance: Name of this process among the instances of its application: of consumers that
            are broadcast instances, and as a member of groups whose queues belong to members;
            empty: each instance is new at each start, and the member has the name of the machine.
    """

    address: Address
    addresses: tuple[Address, ...]
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
    instance: str

    def __init__(
        self,
        *,
        address: Address,
        addresses: Sequence[Address] = (),
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
        instance: str = "",
    ) -> None:
        """Times are seconds or timedeltas.

        Raises:
            InvalidRequest: A value is not valid; the text names the argument.
        """
        if not isinstance(address, Address):
            raise InvalidRequest(
                f"address must be one of another client, such as client.options.address, not "
                f"{type(address).__name__}: ternmq.connect(url) makes a client of a url"
            )
        others = _addresses(addresses)
        for what, count in (
            ("buffer_bytes", buffer_bytes),
            ("batch_bytes", batch_bytes),
            ("batch_rows", batch_rows),
            ("window_bytes", window_bytes),
        ):
            check_positive(what, count)
        if batch_bytes > _MOST_BATCH_BYTES:
            raise InvalidRequest(
                f"batch_bytes must be at most {_MOST_BATCH_BYTES} (1 MiB), not {batch_bytes}: a "
                "broker does not take every larger batch"
            )
        put = object.__setattr__
        put(self, "address", address)
        put(self, "addresses", others if others[:1] == (address,) else (address,))
        put(self, "app", text("app", app))
        put(self, "token", _token(token))
        put(self, "timeout", length_of("timeout", timeout))
        put(self, "connect_timeout", length_of("connect_timeout", connect_timeout))
        put(self, "buffer_bytes", buffer_bytes)
        put(self, "batch_bytes", batch_bytes)
        put(self, "batch_rows", batch_rows)
        put(self, "window_bytes", window_bytes)
        longest = length_of("max_processing_time", max_processing_time)
        put(self, "max_processing_time", longest)
        put(self, "drain_timeout", drain_of(drain_timeout))
        put(self, "first_backoff", seconds_of("first_backoff", first_backoff))
        put(self, "longest_backoff", seconds_of("longest_backoff", longest_backoff))
        put(self, "instance", text("instance", instance) and check_instance(instance))

    @classmethod
    def checked(cls, given: object) -> Self:
        """Return the value that was given as ``options=``.

        Raises:
            InvalidRequest: It is of another type.
        """
        if not isinstance(given, cls):
            raise InvalidRequest(f"options is a ternmq.Options, not {type(given).__name__}")
        return given

    @property
    def url(self) -> str:
        """The url of all addresses, without app and token."""
        return url_of(self.addresses)

    @property
    def backoff(self) -> Backoff:
        """The pauses between tries."""
        return Backoff(self.first_backoff, self.longest_backoff)

    def __repr__(self) -> str:
        return f"Options({self.url}, app={self.app!r}, token={'***' if self.token else ''!r})"


def _addresses(given: object) -> tuple[Address, ...]:
    """Return addresses.

    Raises:
        InvalidRequest: They are none.
    """
    found = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    for one in found:
        if not isinstance(one, Address):
            raise InvalidRequest(
                "addresses must be those of another client, such as client.options.addresses, not "
                f"{type(one).__name__}: ternmq.connect(url) makes a client of a url"
            )
    return found


def _token(token: object) -> str:
    """Return a token.

    Raises:
        InvalidRequest: It is no token: the broker refuses a greeting that is much longer.
    """
    found = text("token", token)
    if len(found) > LONGEST_TOKEN:
        raise InvalidRequest(
            f"the token has {len(found):,} characters; a token has at most {LONGEST_TOKEN}: was "
            "another text or file taken for it?"
        )
    return found
