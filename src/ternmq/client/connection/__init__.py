"""Connections to a broker.

Reading order: ``address``, ``options``, ``connecting`` (the environment), ``backoff`` (when to try
again), ``dial`` (how a socket is connected), ``link`` (one connection), ``known`` (addresses that
brokers name), ``choosing`` (which of several brokers is tried when), ``racing`` (one attempt to
connect), ``session`` (one connection after the other), ``replica`` (one that only reads),
``requests`` (control requests and their errors), ``stats``, ``signals`` (ends of the process),
``raising`` (errors that do not keep what their callers hold); without an event loop: ``blocking``
(one connection), ``trying`` (to the first of several brokers), ``line`` (one after the other, for
bulk work).

Invariants: one connection at a time; a session survives a lost connection.
"""
