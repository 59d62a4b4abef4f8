"""What an application adds to its sends and handlers, above both clients.

Reading order: ``modes`` (batch sessions, a limit on the rate of sends).

Invariants: ``import ternmq`` does not import this package; it uses the clients as applications do.
"""

from __future__ import annotations

from ternmq.client.content.items import Item, Items
from ternmq.reliable.modes.batch import batch
from ternmq.reliable.modes.holders import BlockingHolder, Holder
from ternmq.reliable.modes.throttle import Throttle

__all__ = ["batch", "Holder", "BlockingHolder", "Items", "Item", "Throttle"]
