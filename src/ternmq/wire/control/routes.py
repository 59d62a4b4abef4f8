"""Control: routes, by which clients learn of the brokers of a cluster."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, field

from ternmq.wire.control.coding import Body

MAX_BROKERS: Final = 64
"""Most brokers of a broker group in routes. So routes fit the frame in which a broker that does not
lead sends them: see ``ClientSession``."""


class RoutesAsk(Body, frozen=True, kw_only=True):
    """Return the broker groups, the brokers of each, and who is the primary.

    A broker group has one primary, which serves its clients. A client stores the routes and asks
    again after the push [ROUTES_CHANGED](#routes_changed), which a connection gets from its first
    ROUTES on. If its connection is lost, or refused with NotPrimary, it tries the primary first,
    then the others, those of its own configuration included: it may not reach an address that a
    broker states. WELCOME says whether a broker answers this command (`routes`).
    """

    topics: Annotated[list[str], Meta(max_length=1000)] = field(default_factory=list)
    """Topics whose places the answer is to contain."""


class BrokerRoute(Body, frozen=True, kw_only=True):
    """A broker of a broker group."""

    name: str
    """Its name, as in WELCOME."""
    addresses: list[str] = field(default_factory=list)
    """Where clients reach it, each `HOST:PORT`, the best first; IPv6 in brackets. Empty: it does
    not run, or an address for all clients is not known."""
    role: str = "follower"
    """`primary`; `member`: it has everything that was answered, and can take over; `follower`: it
    copies, and cannot take over now."""
    zone: str = ""
    """Place in which it runs, such as a data centre; empty: not known. Always empty today."""
    tls: bool = False
    """Its addresses need TLS."""


class BrokerGroupRoute(Body, frozen=True, kw_only=True):
    """A broker group: brokers with the same journal.

    Of two routes of one `journal`, those with the higher `epoch` are newer, then those with the
    higher `version`.
    """

    name: str
    set: str = ""
    """The set of broker groups that it belongs to; empty: to none. Always empty today."""
    state: str = "up"
    """`up`; `down`: it has no primary now."""
    writes: str = "open"
    """`open`: it takes new messages; `closed`: it refuses them with ReadOnly."""
    journal: int = 0
    """Number of its journal, as in WELCOME; 0: a broker without a broker group."""
    epoch: int = 0
    """Epoch of the primary's reign."""
    version: int = 0
    """Version of the leadership record that the route was made of."""
    primary: str = ""
    """Name of the primary, whether it runs or not; empty: not known."""
    brokers: Annotated[list[BrokerRoute], Meta(max_length=MAX_BROKERS)] = field(
        default_factory=list
    )
    """The brokers, by name."""


class QueueRoute(Body, frozen=True, kw_only=True):
    """The place of a queue."""

    number: int
    group: str
    """The broker group that has it."""
    state: str = "open"
    """`open`; `closed`: it takes no new messages."""


class TopicRoute(Body, frozen=True, kw_only=True):
    """The places of a topic's queues."""

    name: str
    queues: list[QueueRoute] = field(default_factory=list)


class Routes(Body, frozen=True, kw_only=True):
    """The routes, as the broker that answers knows them."""

    cluster: str = ""
    """Name of the cluster; empty: the broker groups have no registry in common. Always empty
    today."""
    generation: int = 0
    """Number of the registry's last change; 0: there is no registry."""
    group: str = ""
    """Name of the broker group of the broker that answers."""
    groups: list[BrokerGroupRoute] = field(default_factory=list)
    """The broker groups: today the one of the broker that answers."""
    topics: list[TopicRoute] = field(default_factory=list)
    """The requested topics whose queues are spread over several broker groups. A topic that is not
    listed has all of its queues in `group`: today every topic."""
    settings: dict[str, str] = field(default_factory=dict)
    """Settings that the cluster gives its clients, by name; they apply where the application sets
    nothing. Always empty today."""


class RoutesChanged(Body, frozen=True, kw_only=True):
    """Push: the routes have changed. Ask for them again, after a random time of up to 0.5 s.

    With `routes`, they need not be asked for. A broker that is not the primary sends this before it
    refuses HELLO with NotPrimary, if HELLO states `routes`: the only push before the answer to
    HELLO.
    """

    routes: Routes | None = None
    """The routes now."""
