"""Ids that are unique everywhere, and increase.

``text`` has ids that need no broker.
"""

from ternmq.reliable.ids.text import text_id

__all__ = ["text_id"]
