"""The libraries through which applications use their databases.

``alchemy`` (SQLAlchemy: engines, sessions, connections), ``bare`` (connections of ``sqlite3``,
psycopg and PyMySQL), ``attached`` (what both tell of a transaction that is open), ``transactions``
(SQLAlchemy: transactions in which a function of the application works), ``refusals`` (what an error
means).

Invariant: SQLAlchemy is known to ``alchemy`` and ``transactions`` only.
"""
