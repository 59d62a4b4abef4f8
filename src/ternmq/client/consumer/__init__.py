"""Receiving: pulled messages, their leases, and their settles.

Reading order: ``consuming`` (what programs use), ``consumer``, ``puller`` with ``prefetch`` (how
much is pulled ahead) and ``chunk`` (a batch as it arrived, and a row of it); ``delivery`` and
``deliveries`` with ``ordering`` (batches of ordered groups); ``lease``; settles: ``core`` (decides,
without I/O), ``settler``, ``settles``; ``keeper`` (extends leases from a thread of its own) and
``awake`` (whether the process was frozen); ``running`` (a handler under way); ``concluding`` (how
the processing of a delivery ends); failures: ``learning`` (retry policies), ``telling`` (log
texts); ``membership`` (groups whose queues belong to members); ``reading`` (without a group).

Invariants: a delivery is settled once; a lease without a holder is released; a message is not
given back while a handler runs on it; nothing is begun whose lease is over.
"""
