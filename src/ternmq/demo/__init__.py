"""``ternmq demo``: flights go through a broker that is killed on the way.

It is written as an application would be: it imports ``ternmq`` and nothing below it, and starts
the broker with the command that everybody has, ``ternmq serve``.

Entry point: ``start.start``. Reading order: ``flights`` (the data, with ``clocks``), ``plan`` (who
is to get what), ``records`` (what processes write down), ``producer``, ``worker`` (the processes),
``processes``, ``wires`` and ``watch`` (starting, hearing and ending them), ``conductor`` (what
happens when), ``check`` with ``evidence`` and ``verdict`` (the judge), ``tables`` with
``tables_judge``, ``screen``, ``report``.

Invariants:

* The judge is a process of its own. It reads the flights file and what the processes wrote to files
  of their own, synced before a message was acknowledged. No number of the broker counts for it.
* Whatever happens, no process and no folder is left: ``watch`` sees to it when nobody else can.
"""
