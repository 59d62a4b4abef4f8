"""``ternmq demo``: flights are sent through a broker that is killed on the way.

It is written like an application: it imports ``ternmq`` and nothing below it, and starts the broker
with the ordinary command, ``ternmq serve``.

Entry point: ``start.start``. Reading order: ``flights`` (the data, with ``clocks``), ``plan``
(topics and groups), ``records`` (what processes write to files), ``producer`` with ``reminders``,
``cashier`` with ``bookings``, ``worker`` (the processes), ``processes``, ``wires`` and ``watch``
(starting them, talking to them, ending them), ``conductor`` (the course of a run), ``check`` with
``judge``, ``tables``, ``screen``, ``report``.

Invariants:

* The judge is a separate process. It reads the flights file and the processes' own files, which
  were synced before a message was acknowledged. It uses no number from the broker.
* No process and no folder is left after a run, however it ends; ``watch`` cleans up after SIGKILL.
"""
