"""A blocking connection to the first of several brokers that accepts HELLO.

The addresses are tried one after the other, each for a short time; if one was silent, all again for
longer, up to the timeouts. So two silent addresses cost half a second, and a broker that is slow
to answer is found as well. The keeper and the bulk client connect so: they have no event loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from ternmq.client.connection.address import Address
from ternmq.client.connection.blocking import BlockingConnection
from ternmq.client.connection.choosing import STAGGER_S, Failure, verdict
from ternmq.client.connection.connecting import closed_at_once, known_at, refused, silent
from ternmq.client.connection.known import Known
from ternmq.client.connection.raising import own
from ternmq.client.connection.stats import Traffic
from ternmq.model.errors import ConnectionLost, NotABroker, TernMQError
from ternmq.wire import control

_GROWTH: Final = 2.0
_LEARNED_S: Final = 2 * STAGGER_S
"""Longest wait for a connection to an address that was learned, and that has never served: it may
be one that cannot be reached from here."""


class Opened(NamedTuple):
    """A connection whose HELLO was answered."""

    line: BlockingConnection
    welcome: control.Welcome
    address: Address


class _Failed(NamedTuple):
    failure: Failure
    late: bool
    """Whether it was silent for as long as it was waited for."""


def connect_to_first(
    addresses: Sequence[Address],
    traffic: Traffic,
    hello: control.Hello,
    connect_timeout: float,
    timeout: float,
    known: Known | None = None,
) -> Opened:
    """Connect to the first broker that accepts HELLO; with one address, wait as told.

    Args:
        addresses: In the order in which they are tried.
        traffic: Counts what goes over the connection.
        hello: The request.
        connect_timeout: Most seconds for a connection, and for TLS.
        timeout: Most seconds for the answer to HELLO.
        known: Which of the addresses were learned; it learns what brokers push. None: none was, and
            ``hello`` does not state ``routes``.

    Raises:
        TernMQError, OSError: As ``BlockingConnection.connect``; of several, the ``verdict``.
    """
    known = known or Known(addresses)
    if len(addresses) == 1:
        address = addresses[0]
        line = _line(address, traffic, known)
        try:
            return Opened(line, line.connect(hello, connect_timeout, timeout), address)
        except NotABroker as error:
            raise known_at(address, error) from error
        except ConnectionLost as error:
            raise closed_at_once(address, None) from error
    failures: list[Failure] = []
    for limit in _limits(max(connect_timeout, timeout)):
        failures.clear()
        again = False
        for address in addresses:
            found = _tried(
                address, traffic, hello, min(limit, connect_timeout), min(limit, timeout), known
            )
            if isinstance(found, Opened):
                return found
            failures.append(found.failure)
            again = again or found.late
        if not again:
            break
    failure = verdict(failures)
    failures.clear()  # see ``raising``
    try:
        raise own(failure)
    finally:
        del failure


def _limits(longest: float) -> Iterator[float]:
    """Yield the seconds for which each address is tried, round by round."""
    limit = STAGGER_S
    while limit < longest:
        yield limit
        limit *= _GROWTH
    yield longest


def _tried(
    address: Address,
    traffic: Traffic,
    hello: control.Hello,
    connect_timeout: float,
    timeout: float,
    known: Known,
) -> Opened | _Failed:
    line = _line(address, traffic, known)
    trusted = known.trusts(address)
    if not trusted:
        connect_timeout = min(connect_timeout, _LEARNED_S)
    try:
        welcome = line.connect(hello, connect_timeout, timeout)
        known.check(address, welcome)
    except TimeoutError:  # of HELLO
        return _Failed(Failure(address, silent(address, accepted=True)), late=True)
    except ConnectionLost:
        return _Failed(Failure(address, closed_at_once(address, None)), late=False)
    except OSError as error:
        return _Failed(Failure(address, refused(address, error)), late=False)
    except TernMQError as error:
        late = trusted and isinstance(error.__cause__, TimeoutError)  # of the connection
        line.close()
        told = known.refusal(address, own(known_at(address, error)))
        return _Failed(Failure(address, told), late=late)
    return Opened(line, welcome, address)


def _line(address: Address, traffic: Traffic, known: Known) -> BlockingConnection:
    line = BlockingConnection(address, traffic)
    line.on_push = partial(known.pushed, address)
    return line
