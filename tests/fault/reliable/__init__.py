"""Faults on applications that send within the transactions of their database (OBX-1, OBX-2, EOS-1).

In reading order: ``shop`` (the business: what a transaction does), ``member`` (a process of the
application: writes orders, or only compensates, and stops itself at a step), ``nursery`` (forks
members, with everything imported) and ``crew`` (the tests' hands on both), ``checks`` (looks from
outside: business tables, what each process rolled back, the topics from their first message),
``place`` (all that a test has); ``transfers`` (money over three stages, EOS-1); ``passes``
(compensators over a file, a broker in memory and clocks that a test moves: for what a mutant of the
component breaks), ``tools``. Databases are those of ``tests.killable_databases``.

The application, the broker and the database server are killed while they stand still at a step, or
at random. A fault of the plan that did not happen fails the test as inconclusive.

`make test` runs a short form (``conftest``); `make outbox-faults` all, with ``OUTBOX_LONG=1``, with
orderly sessions on MariaDB (``tests/black_box/test_rows_sequences.py``) and a handler of 90 s
(``tests/black_box/test_rows_inbox.py``).
"""
