"""Functions that run once every so many seconds, in one process of all that have them.

``ticks`` (which process runs which tick: statements and decisions), ``task`` (the thread, and what
an application calls).

Invariants: each tick runs at most once; a process that runs a job has the job's lease, so that the
job does not run twice at one time.
"""
