"""Connections to a broker.

Reading order: ``address``, ``options``, ``connecting`` (the environment), ``backoff`` (when to try
again), ``dial`` (how a socket is connected), ``link`` (one connection), ``session`` (one connection
after the other), ``requests`` (control requests and their errors), ``stats``, ``signals`` (ends of
the process), ``raising`` (errors that do not keep what their callers hold);
without an event loop: ``blocking`` (one connection), ``line`` (one after the other, for bulk work).

Invariants: one connection at a time; a session survives a lost connection.
"""
