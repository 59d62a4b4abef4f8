"""A database of an application, as far as every part of the reliable component needs it.

Reading order: ``port`` (connections and transactions), ``dialect`` (what differs between
PostgreSQL, MySQL and SQLite), ``tables`` (the tables, their versions), ``statements`` (what
statements on them need), ``prepare`` (makes and checks them), ``lease`` (which process does a job),
``trouble`` (errors in threads), ``counts`` (what several threads count).

Invariants: times are the database's own clock; what is compared is kept as bytes; no row is locked
while the network is used.
"""
