"""The report: one page of HTML.

``data`` (what it shows), ``page``, ``plots``, ``seconds``, ``style``.
"""
