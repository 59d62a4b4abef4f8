"""The libraries through which applications use their databases, each known to one module.

``alchemy`` (SQLAlchemy: engines, sessions, connections), ``django`` (its connections and
``transaction.atomic``), ``bare`` (connections of ``sqlite3``, psycopg and PyMySQL), ``attached``
(what they tell of a transaction that is open), ``driver`` (what drivers have in common).
"""
