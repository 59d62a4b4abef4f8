"""The client library: what applications import, all of it through ``ternmq`` itself.

Everything runs in the event loop of the application, except handlers that are plain functions, and
the keeper, which extends leases on a thread with its own socket, so that a blocked loop does not
end them. ``ternmq.sync`` is the same client behind a loop in a thread.

Reading order:

* Arguments of connect: ``address``, ``options``, ``connecting`` (the environment), ``backoff``.
* Connections: ``link`` (one), ``session`` (one after the other), ``requests`` (control requests
  and their errors), ``forking``.
* Sending: ``message``, ``outgoing``, ``singles``, ``many``, ``receipts``, ``lanes``, ``placing``,
  ``room``, ``window`` (limits unanswered sends), ``deadlines``, ``producer``, ``resending``,
  ``heard`` (which failures were noticed), ``unsent`` (messages of a client that was not closed),
  ``reports``, ``prepared_ids``.
* Receiving: ``source``, ``chunk``, ``puller``, ``prefetch`` (how much is pulled ahead),
  ``consumer``, ``reading`` (without a group).
* Received messages and their outcome: ``lease``, ``delivery``, ``deliveries``, ``ordering``
  (batches of ordered groups), ``settler``, ``settles``, ``keeper``, ``exiting`` (the end of the
  process), ``causes``, ``reasons``, ``learning`` (retry policies) and ``telling`` (log texts of
  failures).
* Calls of functions: ``signature``, ``unawaited``, ``declarations``, ``depends``,
  ``injection``, ``yielding``, ``lifespans``, ``middleware``, ``composing``, ``handlers``,
  ``running``, ``draining``, ``signals``.
* Declarations: ``topic``, ``policy``, ``topology``, ``changes`` (differences), ``contradictions``
  (groups that a broker always refuses), ``making`` (a topic at its first use), ``redeclaring`` (at
  a broker that lost its data).
* Bodies and other values: ``codecs``, ``models``, ``validation``, ``selecting``, ``tracing``.
* Without messages: ``admin``, ``admin_client``, ``grants``, ``deadletters``, ``lookup``, ``again``,
  ``places`` (the queue of an offset), ``stats``.
* The whole: ``parts``, ``sending``, ``receiving``, ``transacting``, ``client`` (the class with all
  of it), ``blocking`` (for threads), ``surface`` (what ``ternmq`` exports).
* For pipelines, apart from all this: ``bulk``, ``bulk_line``.

Invariants: what is sent again is sent with the same bytes; batches of an ordered topic leave one
after the other; a delivery is settled once; a lease without a holder is released; an unknown
outcome is never reported as a failure or a success; a message is not given back while a handler
runs on it; an error is raised or logged, not both.
"""
