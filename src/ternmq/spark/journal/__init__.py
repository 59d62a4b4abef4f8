"""The journal as a table.

Reading order: ``options``, ``port`` with ``broker`` and ``files`` (where it is read from),
``names``, ``events`` (the columns), ``facts`` and ``columns`` (facts to rows), ``reading``,
``source``.
"""
