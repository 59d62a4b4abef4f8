"""Sending and receiving together with the changes of an application's database.

``ids``: numbers and text ids that are unique everywhere.

Reading order: ``ids``.
Invariant: the package uses the client as applications do; ``import ternmq`` imports none of it.
"""

from ternmq.reliable.ids import Ids, IdsStats, text_id

__all__ = ["Ids", "IdsStats", "text_id"]
