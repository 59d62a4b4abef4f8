"""The door for the native protocol: its connections.

Reading order: ``connection`` (a socket and its time limits), ``peer`` (its budgets), ``hub`` (all
of them), ``admission`` (limits on their number).

Invariant: a connection is not read from while it has too much unanswered.
"""
