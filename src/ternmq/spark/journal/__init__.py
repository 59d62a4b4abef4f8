"""The journal as a table.

Reading order: ``options``, ``port`` with ``broker`` and ``files`` (where it is read from),
``names``, ``events`` (the columns), ``record``, ``facts`` with ``stored``, ``groups`` and
``transactions`` (facts to rows, one by one), ``columns`` (many at once), ``reading``, ``source``.
"""
