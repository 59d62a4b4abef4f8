"""The loop around the core: commands, one write, one sync, answers.

Reading order: ``engine`` (a turn), ``reading_core`` (what callers, and commands that only read,
need of it), ``clocks``, ``sync_pace`` (whether a sync runs in the loop or in its thread),
``copies`` (what the core asks of copies at other brokers), ``coldreads`` (commands that wait for a
read) with ``fairqueue`` (jobs of several apps in turn).

Invariants: nothing in the loop waits for the disk (a short sync of a quick disk excepted); after a
failed write or sync nothing leaves, and the process ends.
"""
