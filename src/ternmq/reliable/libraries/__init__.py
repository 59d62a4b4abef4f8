"""The libraries through which applications use their databases.

``alchemy`` (SQLAlchemy: engines, sessions, connections), ``django`` (its connections and
``transaction.atomic``), ``bare`` (connections of ``sqlite3``, psycopg and PyMySQL), ``attached``
(what they tell of a transaction that is open), ``driver`` (what the statements need of a driver),
``forks`` (SQLite in forked children), ``extras`` (libraries that are not installed), ``opening``
(port: transactions in which a function of the application works), ``transactions`` (those of
SQLAlchemy; Django's are in ``django``), ``standing`` (whether they are still the ones that began),
``choice`` (which library a database is used through), ``refusals`` (what an error means),
``savepoints`` (those of SQLite that are no part of a transaction).

Invariant: SQLAlchemy is known to ``alchemy``, ``transactions`` and ``savepoints`` only, Django to
``django``.
"""
