"""The door for the native protocol: its connections.

Reading order: ``connection`` (a socket, its requests and answers, its limits), ``costs`` (what a
request counts for), ``mistaken`` (what a peer of another protocol is told), ``hub`` (all of them),
``admission`` (limits on their number).

Invariant: a connection is not read from while it has too much unanswered.
"""
