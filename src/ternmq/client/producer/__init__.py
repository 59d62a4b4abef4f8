"""Sending: what is under way, sent again, and given up.

Reading order: ``producer`` (the loop, the connection and the futures), ``core`` (all decisions,
without I/O); ``outgoing`` (a message), ``load`` (a batch, and the lane in which it waits),
``singles`` and ``many`` (how batches come to be), ``lanes`` (those of a topic), ``placing`` (topics
that are not known yet), ``facts`` (requests about topics), ``selecting``, ``receipts``; ``room``
and ``window`` (limits), ``deadlines``, ``resending``; ``heard`` (which failures were noticed),
``unsent`` (messages of a client that nobody closed), ``reports`` (counts for the audit);
``within`` (ports to databases that take messages instead of the broker).

Invariants: what is sent again is sent with the same bytes; batches of an ordered topic leave one
after the other; an unknown outcome is never reported as a failure or a success.
"""
