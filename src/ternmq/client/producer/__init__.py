"""Sending: what is under way, sent again, and given up.

Reading order: ``producer``; ``lanes`` (one per topic), ``placing`` (topics that are not known
yet), ``load`` (a batch under way), ``singles`` and ``many`` (how batches come to be),
``selecting``, ``receipts``; ``room`` and ``window`` (limits), ``deadlines``, ``resending``;
``heard`` (which failures were noticed), ``unsent`` (messages of a client that nobody closed),
``reports`` (counts for the audit).

Invariants: what is sent again is sent with the same bytes; batches of an ordered topic leave one
after the other; an unknown outcome is never reported as a failure or a success.
"""
