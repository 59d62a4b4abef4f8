"""Which subscriptions may have rows for the pulls that wait: `parking` looks at them next."""

from __future__ import annotations

from ternmq.broker.catalog import Catalog, Subscription
from ternmq.broker.groupqueue import GroupQueue


class Wakes:
    """Subscriptions whose parked pulls are to be tried again, the one woken first before others.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        awake: Those; who tries them takes them out.
    """

    __slots__ = ("_catalog", "awake")

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.awake: dict[Subscription, None] = {}

    def wake(self, subscription: Subscription) -> None:
        """Rows may be available to it."""
        if subscription.waiters:
            self.awake[subscription] = None

    def wake_for(self, held: GroupQueue) -> None:
        """Rows of a group's queue may be available."""
        subscription = self._catalog.consumer_of(held)
        if subscription is not None:
            self.wake(subscription)
