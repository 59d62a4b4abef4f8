"""Readers at a broker that follows: they are answered from its copy of the journal.

Entry point: ``readers``. Reading order: ``lag`` (how far the copy is behind), ``core`` (the turns
of the loop), ``commands`` (which requests are answered, and how), ``readers`` (puts them together,
and has the connections).

Invariants: nothing here changes the copy or its views; only what is committed is shown; tokens and
rights are those of the copy; limits and budgets are those of a broker that leads; a broker without
a cluster imports nothing of this.
"""
