"""The protocol between clients and brokers: frames, commands, bodies, sessions. No I/O.

Reading order: ``frames`` (how bytes become frames), ``commands`` (the table of all commands, with
who may use each), ``bodies`` (what is laid out by hand: send, pull, settle, extend, read; a file
each), ``control`` (everything else: msgpack maps), ``session`` (who may say what when: a
client's side and a broker's side, which tests join in memory), ``port`` (what a door to the
broker brings, and what it can have done). ``docs/protocol/`` describes the protocol for strangers.

Invariants: lengths are checked before memory is taken; nothing received is believed before it was
checked; a frame is whole or not there; no body of a message is looked into.
"""
