"""Damaged bytes of the journal while the broker runs: they are found, and mended from another copy.

Entry point: ``scrubber``, which reads the journal again, round after round, and mends what is
damaged. Reading order: ``figures`` (what is known of it), ``donors`` (what is asked of another
broker), ``asking`` (a connection that asks), ``giving`` (a connection that is answered),
``scrubber``, ``alarms``, ``beside`` (the thread of a broker that leads), ``caretaker`` (all of it
for such a broker).

Invariants: nothing here delays a command: files are read and written in threads, a little at a
time; decisions about bytes are those of ``journal.mending`` and ``cluster.replication.mending``;
what another broker sends is written only after both.
"""
