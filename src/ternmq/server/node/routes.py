"""The routes of a broker group, made of its leadership record and of who is announced. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from ternmq.cluster.coordination.group import Presence
from ternmq.cluster.coordination.record import Leadership
from ternmq.wire import control
from ternmq.wire.control import MAX_BROKERS


def routes_of(
    group: str,
    record: Leadership,
    present: Mapping[str, Presence],
    *,
    up: bool,
    writes_open: bool,
) -> control.Routes:
    """Return the routes of one broker group. O(brokers), of which it names at most MAX_BROKERS.

    Args:
        group: Its name.
        record: Its leadership record.
        present: The brokers that are announced, by name.
        up: Whether it has a primary.
        writes_open: Whether it takes new messages.
    """
    members = {one.broker for one in record.members}
    others = sorted(present.keys() - members)
    # The primary and the members first: only these can serve a client.
    named = [*sorted(members, key=lambda one: (one != record.primary, one)), *others]
    brokers = [_broker(one, record.primary, members, present) for one in named[:MAX_BROKERS]]
    route = control.BrokerGroupRoute(
        name=group,
        state="up" if up else "down",
        writes="open" if writes_open else "closed",
        journal=record.journal,
        epoch=record.epoch,
        version=record.version,
        primary=record.primary,
        brokers=sorted(brokers, key=lambda one: one.name),
    )
    return control.Routes(group=group, groups=[route])


def _broker(
    name: str, primary: str, members: set[str], present: Mapping[str, Presence]
) -> control.BrokerRoute:
    there = present.get(name)
    role = "primary" if name == primary else "member" if name in members else "follower"
    return control.BrokerRoute(
        name=name,
        addresses=[] if there is None else [there.address],
        role=role,
        tls=there is not None and there.tls,
    )
