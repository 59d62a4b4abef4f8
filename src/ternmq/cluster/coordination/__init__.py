"""The leadership record of a broker group, and the coordinators that may hold it.

A coordinator is a store outside the brokers with an atomic compare-and-set: ZooKeeper, or a table
of a database. Reading order: ``record`` (what is stored), ``port`` (what a coordinator can do),
``resolving`` (a change whose answer was lost), ``wishes`` (settings and orders of operators),
``loss`` (what an operator accepts to lose),
``group`` (all that one process reads and changes for its broker group), ``memory`` (the port in its
shortest form, for tests and the simulator), ``database`` with ``tables`` and ``threads``,
``zookeeper`` with ``requests`` and ``announcing``, ``opening`` (a coordinator from its URL),
``checking`` (whether one works).

Invariants: a record changes by compare-and-set only; an answer that did not come is ``Unknown``,
never a refusal; no call blocks the loop or takes longer than its deadline; what a store returns is
untrusted, and rubbish raises ``BadRecord``.
"""
