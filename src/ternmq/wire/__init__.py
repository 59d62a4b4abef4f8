"""The protocol between clients and brokers: frames, commands, bodies, sessions. No I/O.

Reading order: ``frames`` (how bytes become frames), ``commands`` (the table of all commands, with
the rights that each needs), ``bodies`` (bodies with a layout of their own: send, pull, settle,
extend, read; a file each), ``control`` (all other bodies: msgpack maps), ``session`` (the state
machine of a connection: a client's side and a broker's side, which tests join in memory),
``stream`` (the same for the stream from a primary to a follower), ``segments`` (the same for a
broker that asks another one for records), ``port`` (what a door to the broker brings, and what it
can have done). ``docs/protocol/`` describes the same for authors of
clients.

Invariants: lengths are checked before memory is taken; everything received is checked before it is
used; readers return only whole frames; bodies of messages are not read.
"""
