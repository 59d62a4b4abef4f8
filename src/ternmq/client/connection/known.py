"""The addresses that a client knows of its broker group: those of its URL, and learned ones.

The URL is the base: its addresses are always tried. Brokers state in routes where they and the
others are reached. These addresses are learned. They may be wrong for this client (a proxy, NAT, a
container), and somebody else may listen there. So

* only the broker group's own brokers are used at a learned address: WELCOME has the journal's
  number, which must be that of the routes; nor does anybody else there name further addresses;
* once a broker has served this client, a refusal at a learned address where none has is not final;
  nor is a connection to it waited for longer than half a second while there are other addresses;
* app, token, TLS and the file of certificates are those of the URL, and a certificate must be for
  the host that is connected to;
* a broker that has served at an address of the URL is used there, not at the one that it states;
* an address of one's own machine is ignored if it was learned from another machine.

No I/O. Callable from any thread: the session and its keeper share an object. Every change replaces
whole values. If two threads change them in the same moment, one of the changes may be lost, until
routes come again: at the next push, refusal or connection.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from ternmq.client.connection.address import MOST_HOSTS, Address
from ternmq.model import units
from ternmq.model.errors import CannotConnect, ProtocolError, TernMQError
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Push

log: Final = logging.getLogger("ternmq")

MOST_LEARNED: Final = MOST_HOSTS
"""Most addresses that are learned: each may cost 250 ms in an attempt to connect."""


class Known:
    """What is known of a broker group. See the module for threads.

    Args:
        base: The addresses of the URL, at least one.
    """

    def __init__(self, base: Sequence[Address]) -> None:
        self._base = tuple(base)
        self._learned: tuple[Address, ...] = ()
        self._served: Mapping[str, Address] = MappingProxyType({})
        """Broker -> where it served this client last; brokers of the newest route."""
        self._last = ""
        """The broker that served this client last; empty: none did."""
        self._route: control.BrokerGroupRoute | None = None
        """The newest route."""

    @property
    def learned(self) -> Sequence[Address]:
        """The learned addresses; none of them is in the URL."""
        return list(self._learned)

    def replicas(self) -> Sequence[Address]:
        """Return where the brokers are that can take over from the primary, by name."""
        route = self._route
        if route is None:
            return []
        known = {*self._base, *self._learned}
        found: list[Address] = []
        for broker in route.brokers:
            if not _is_replica(broker, route):
                continue
            served = self._served.get(broker.name)
            places = self._places(broker) if served not in known else [served]
            found += [one for one in places if one in known][:1]
        return found

    def is_replica(self, name: str) -> bool:
        """Return whether a broker can take over from the primary, by the newest route."""
        route = self._route
        if route is None:
            return False
        return any(one.name == name and _is_replica(one, route) for one in route.brokers)

    def share(self, other: Known) -> None:
        """Learn what is known to another object with the same addresses in its URL."""
        route = other._route
        if route is None or (self._route is not None and _is_newer(self._route, route)):
            return
        self._route = route
        self._learned = other._learned
        self._served = MappingProxyType({**other._served, **self._served})

    def trusts(self, address: Address) -> bool:
        """Return whether the URL has an address, or a broker there has served this client."""
        return address in self._base or address in self._served.values()

    def in_order(self, last: Address, *, stepped_down: bool) -> Sequence[Address]:
        """Return all addresses in the order in which they are tried.

        The primary by the routes comes first if it is another broker than the one that served last,
        then the address used last, the others of the URL, and learned ones.

        Args:
            last: The address used last.
            stepped_down: Whether the broker there said that it is not the primary: it is last.
        """
        others = [one for one in (*self._base, *self._learned) if one != last]
        ordered = [*others, last] if stepped_down else [last, *others]
        primary = self._primary()
        if primary is not None and primary in ordered:
            ordered.remove(primary)
            ordered.insert(0, primary)
        return ordered

    def _primary(self) -> Address | None:
        """Return the address of a primary that is another broker than the one that served last."""
        route = self._route
        if route is None or not route.primary or route.primary == self._last:
            return None
        known = {*self._base, *self._learned}
        served = self._served.get(route.primary)
        if served in known:
            return served
        stated = [self._places(one) for one in route.brokers if one.name == route.primary]
        return next((one for places in stated for one in places if one in known), None)

    # -- what connections bring ------------------------------------------------------------------

    def check(self, address: Address, welcome: control.Welcome) -> None:
        """Check that a broker that answered HELLO may be used.

        Raises:
            CannotConnect: The address is not in the URL, and it is a broker of another group.
        """
        route = self._route
        if address in self._base or route is None or welcome.journal == route.journal:
            return
        raise CannotConnect(
            f"the broker at {address} is not of the broker group that named this address"
        )

    def serves(self, address: Address, welcome: control.Welcome) -> None:
        """Take note that a broker serves this client at an address; ``check`` has accepted it."""
        self._last = welcome.broker
        if not welcome.routes:
            return
        route = self._route
        named = set() if route is None else {one.name for one in route.brokers}
        served = {name: at for name, at in self._served.items() if name in named}
        self._served = MappingProxyType({**served, welcome.broker: address})
        if route is not None:
            self._take(route, address)  # the address that it states may not be needed any more

    def refusal(self, address: Address, error: TernMQError) -> TernMQError:
        """Return the error to report for an address that failed.

        A refusal that would be final is not, if this client has been served, but not there. Before
        it was served it is: most likely its app or token is wrong.
        """
        if error.retriable or self.trusts(address) or not self._last:
            return error
        text = str(error.args[0]) if error.args else type(error).__name__
        return CannotConnect(f"no use of {address}, which a broker named: {text}")

    def pushed(self, address: Address, push: Push) -> None:
        """Take routes that a broker pushed, if it did; of other pushes, nothing."""
        if push.command is not Command.ROUTES_CHANGED:
            return
        try:
            routes = control.decode_answer(push.body, control.RoutesChanged).routes
        except ProtocolError as error:
            log.warning("the routes of the broker at %s cannot be read: %s", address, error)
            return
        if routes is not None:
            self.learn(routes, address)

    def answered(self, address: Address, body: bytes) -> None:
        """Take the answer to ROUTES. One that cannot be read is logged, and changes nothing."""
        try:
            self.learn(control.decode_answer(body, control.Routes), address)
        except ProtocolError as error:
            log.warning("the routes of the broker at %s cannot be read: %s", address, error)

    def learn(self, routes: control.Routes, address: Address) -> None:
        """Learn the addresses of the broker group that a broker belongs to.

        Args:
            routes: As it stated them.
            address: Where it was reached.
        """
        route = next((one for one in routes.groups if one.name == routes.group), None)
        if route is None or not route.journal:
            return
        known = self._route
        if known is not None and _is_newer(known, route):
            return  # a broker that has not heard of the newer one yet
        if known is not None and known.journal != route.journal and address not in self._base:
            return  # of a stranger: else it could name others, and they would be used
        self._route = route
        self._take(route, address)

    def _take(self, route: control.BrokerGroupRoute, via: Address) -> None:
        """Replace the learned addresses by those of a route."""
        local = _is_local(via)
        found: list[Address] = []
        for broker in route.brokers:
            if self._served.get(broker.name) in self._base:
                continue
            for place in self._places(broker):
                fits = local or not _is_local(place)
                if fits and place not in found and place not in self._base:
                    found.append(place)
        self._learned = tuple(found[:MOST_LEARNED])

    def _places(self, broker: control.BrokerRoute) -> Sequence[Address]:
        """Return the addresses that a broker states, as far as this client may use them."""
        first = self._base[0]
        if broker.tls != first.tls:
            return []
        found: list[Address] = []
        for text in broker.addresses:
            try:
                place = units.read_address(text)
                place.host.encode("idna")  # as the look-up of the name does
            except ValueError:  # of a broker that states no valid address
                continue
            made = replace(first, host=place.host, port=place.port)
            if place.port and not place.is_everywhere:
                found.append(made)
        return found


def _is_replica(broker: control.BrokerRoute, route: control.BrokerGroupRoute) -> bool:
    return broker.role == "member" and broker.name != route.primary


def _is_newer(one: control.BrokerGroupRoute, other: control.BrokerGroupRoute) -> bool:
    if one.journal != other.journal:
        return False  # another broker group has taken its place: which is newer is not known
    return (one.epoch, one.version) > (other.epoch, other.version)


def _is_local(address: Address) -> bool:
    return units.Address(address.host, address.port).is_loopback
