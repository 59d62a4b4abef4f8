"""Messages as rows of the application's database, sent after its transaction.

Reading order: ``rows`` and ``table`` (what is stored), ``backlog`` (all decisions, without I/O),
``sending`` (what is sent and noted), ``relay`` (passes over the table), ``threads`` (when passes
run), ``places`` (the transactions that take messages), ``block`` (around a bare connection's),
``outbox`` (what an application calls); ``steps`` and ``stats`` (what is told); ``operating`` (what
operators ask and change), ``collector`` (what Prometheus gets).

Invariants: what is sent is read from the table, where others see it only after the commit; each
look begins at the first row; a row goes only after its message is stored at the broker; what is
sent again has the same id and the same bytes.
"""
