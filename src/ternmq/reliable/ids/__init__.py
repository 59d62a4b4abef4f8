"""Ids that are unique everywhere, and increase.

Reading order: ``ids`` (numbers, which a broker gives in blocks), ``supply`` (which numbers a
process has, and when it asks for more), ``text`` (ids that need no broker).

Invariants: no number is taken twice; a block is used for less than a second; who has a reserve
waits no longer than its patience.
"""

from ternmq.reliable.ids.ids import Ids, IdsStats
from ternmq.reliable.ids.text import text_id

__all__ = ["Ids", "IdsStats", "text_id"]
