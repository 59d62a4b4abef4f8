"""Real databases: ``tests.databases``."""

from tests.databases import database, servers

__all__ = ["database", "servers"]
