"""The client library: what applications import, all of it through ``ternmq`` itself.

Everything runs in the event loop of the application, except handlers that are plain functions, and
the keeper, which extends leases on a thread with its own socket, so that a blocked loop does not
end them. ``ternmq.sync`` is the same client behind a loop in a thread.

Reading order, from the bottom up; a room imports only rooms that are named above it:

* ``process`` (forks, the end of the interpreter), ``content`` (messages and bodies).
* ``connection`` (sockets, sessions), ``declaration`` (topics, sources, policies).
* ``producer`` (sending), ``consumer`` (receiving, leases, settles).
* ``handler`` (functions that handle messages), ``admin`` (control requests and look-ups).
* The whole: ``numbers`` (blocks of a topic's numbers), ``prepared_ids``, ``sending``, ``writing``
  (messages that go into a transaction of a database instead, see ``ternmq.reliable``),
  ``transacting``, ``topology`` (what ``ternmq apply`` compares), ``serving`` (handlers from start
  to stop), ``client`` (what an application calls), ``surface`` (what ``ternmq`` exports).
* ``forms`` (objects in the form of JSON, for commands and HTTP). For pipelines, apart from all
  this: ``bulk``.

Invariants: what is sent again is sent with the same bytes; batches of an ordered topic leave one
after the other; a delivery is settled once; a lease without a holder is released; an unknown
outcome is never reported as a failure or a success; a message is not given back while a handler
runs on it; an error is raised or logged, not both.
"""
