"""Copying a journal to other brokers, as cores without I/O.

Purpose: the rules by which a broker group loses a machine and nothing that was answered. Entry
point: ``reign``, what the primary of an epoch decides. Reading order: ``settings``, ``follower``,
``reign``, ``tail`` (the newest bytes), ``outgoing`` (what one follower is sent), ``packing``
(which of it is worth compressing), ``incoming`` and
``following`` (what a follower takes of a stream, and acknowledges), ``standing`` (who leads next),
``forcing`` (who leads if an operator accepts a loss), ``mending`` (what a donor's bytes must
fulfil; it reads the own journal, by the port of the disk).

Invariants: no clock, no randomness, no I/O: time is an argument, in µs of a clock of this machine
that nobody sets and that goes on while the machine sleeps; nothing here believes an acknowledgement
of another epoch or of another life of a process.
"""
