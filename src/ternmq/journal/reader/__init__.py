"""Reading a journal from outside: while a broker writes it, or from its files alone.

Reading order: ``reader``, ``page`` (what leaves the broker, with bodies blanked where an app may
not see them), ``starts`` (where the first record at or after a byte begins), ``page_scan``,
``names`` (numbers to names).

Invariant: it reads; it never writes, cuts or locks.
"""
