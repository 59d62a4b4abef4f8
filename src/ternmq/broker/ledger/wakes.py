"""Subscriptions that may have rows for parked pulls: `parking` tries them next."""

from __future__ import annotations

from ternmq.broker.catalog.catalog import Catalog, Subscription
from ternmq.broker.group.progress import Progress


class Wakes:
    """Subscriptions whose parked pulls are to be tried again, in the order of their waking.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        awake: The subscriptions; `parking` removes those that it tries.
        stopped: A pull has ended before it had looked at all rows; who reads it, resets it.
    """

    __slots__ = ("_catalog", "awake", "stopped")

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.awake: dict[Subscription, None] = {}
        self.stopped = False

    def wake(self, subscription: Subscription) -> None:
        """Try the parked pulls of a subscription again: rows may be available."""
        if subscription.waiters:
            self.awake[subscription] = None

    def wake_for(self, progress: Progress) -> None:
        """Do the same for the subscription of a group queue."""
        subscription = self._catalog.consumer_of(progress)
        if subscription is not None:
            self.wake(subscription)

    def go_on(self, subscription: Subscription) -> None:
        """Note that a pull did its share, and did not look at all rows: the next turn goes on."""
        self.stopped = True
        self.wake(subscription)
