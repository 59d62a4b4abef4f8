"""Orderly sessions: the consumer that does their steps in order, each once.

Reading order: ``course`` (all decisions, without I/O), ``item`` (what comes, and what a function
receives), ``table`` and ``store`` (sessions in the database), ``functions`` (what functions take),
``trial`` (what an error means), ``worker`` (does the steps), ``steps`` (what an application makes),
``operating`` (what operators ask and change), ``stats`` and ``collector`` (what Prometheus gets).

Invariants: an item is stored before it is acked; the counter of a session is changed by the first
statement of the transaction in which a step's function works; a session that has a next step has a
message on its way, or is found without one.
"""
