"""The libraries through which applications use their databases, each known to one module.

``alchemy`` (SQLAlchemy: engines, sessions, connections), ``bare`` (connections of ``sqlite3``,
psycopg and PyMySQL), ``attached`` (what both tell of a transaction that is open).
"""
