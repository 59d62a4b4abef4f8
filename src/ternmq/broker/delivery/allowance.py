"""How many rows a session may be leased, in groups that limit this or switch clients off.

Nothing is stored: the sessions, the leases and the settings of the group say it. Only groups with
such a setting ask (``Subscription.limited``).
"""

from __future__ import annotations

from ternmq.broker.catalog.catalog import Subscription, Waiter
from ternmq.broker.group.lease import DETACHED
from ternmq.broker.group.runs import row_count
from ternmq.broker.ledger.views import Views
from ternmq.model.offline import is_offline


def switched_off(views: Views, subscription: Subscription, session: int) -> bool:
    """Return whether the client of a session is switched off for a group."""
    entries = subscription.spec.offline
    known = views.sessions.by_number.get(session) if entries else None
    return known is not None and is_offline(entries, known.info.app, known.info.client)


def allowance(
    views: Views, subscription: Subscription, session: int, most: int, *, detached: bool = False
) -> int:
    """Return how many more rows of a group a session may be leased, at most ``most``.

    Detached leases belong to no session: all those of the group together are limited as those of
    one session are.

    O(leases in the queues of the group of which the session has some). Rows that a transaction
    settles are not the session's any more.
    """
    if switched_off(views, subscription, session):
        return 0
    limit = subscription.spec.concurrency
    if not limit:
        return most
    holder = DETACHED if detached else session
    held = sum(
        row_count(lease.runs)
        for progress in views.figures.by_session.get(holder, ())
        if progress.group == subscription.group
        for lease in progress.leases.values()
        if lease.session == holder
    )
    return max(0, min(most, limit - held))


def first_allowed(views: Views, subscription: Subscription) -> Waiter | None:
    """Return the oldest parked pull of a limited group whose session may get rows."""
    for waiter in subscription.waiters.values():
        detached = bool(waiter.detached_us)
        if allowance(views, subscription, waiter.session, 1, detached=detached):
            return waiter
    return None
