"""The client library: what applications import, all of it through ``ternmq`` itself.

Everything runs in the event loop of whoever uses it, save handlers that are plain functions, and
the keeper, which extends leases on a thread with a socket of its own, so that a blocked loop does
not end them. ``ternmq.sync`` is the same client behind a loop in a thread.

Reading order:

* What connect is told: ``address``, ``options``, ``connecting`` (the environment).
* Connections: ``link`` (one), ``session`` (one after the other), ``requests`` (control requests,
  and what is wrong with one), ``forking``.
* Sending: ``message``, ``outgoing``, ``singles``, ``many``, ``receipts``, ``lanes``, ``placing``,
  ``room``, ``window`` (what leaves too late does not), ``deadlines``, ``producer``, ``resending``,
  ``heard`` (who learns of a failure), ``unsent`` (what a client that nobody closed leaves),
  ``reports``, ``prepared_ids``.
* Receiving: ``source``, ``chunk``, ``puller``, ``prefetch`` (how much is asked for ahead),
  ``consumer``, ``reading`` (without a group).
* What was received, and what became of it: ``lease``, ``delivery``, ``deliveries``, ``ordering``
  (batches of ordered groups), ``settler``, ``settles``, ``keeper``, ``exiting`` (the end of the
  process), ``causes``, ``reasons``, ``learning`` (retry policies) and ``telling`` (what is said of
  failures).
* Functions that are called: ``signature``, ``unawaited``, ``declarations``, ``depends``,
  ``injection``, ``yielding``, ``middleware``, ``composing``, ``handlers``, ``running``,
  ``draining``, ``signals``.
* What applications declare: ``topic``, ``policy``, ``topology``, ``changes`` (what differs),
  ``contradictions`` (groups that a broker refuses in any case), ``making`` (a topic at its first
  use), ``redeclaring`` (at a broker that began anew).
* Bodies and other values: ``codecs``, ``models``, ``validation``, ``selecting``, ``tracing``.
* What moves no messages: ``admin``, ``admin_client``, ``grants``, ``deadletters``, ``lookup``,
  ``again``, ``places`` (the queue that is meant), ``stats``.
* The whole: ``parts``, ``sending``, ``receiving``, ``transacting``, ``client`` (the class that has
  all of it), ``blocking`` (for threads), ``surface`` (what ``ternmq`` exports).
* For pipelines, apart from all this: ``bulk``, ``bulk_line``.

Invariants: what is sent again is sent with the same bytes; batches of an ordered topic leave one
after the other; a delivery is settled once; a lease nobody holds is released; an outcome that is
not known is never told as a failure or a success; a message is not given back while a handler runs
on it; an error is raised or logged, not both.
"""
