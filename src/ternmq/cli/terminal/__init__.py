"""Output on a terminal.

Reading order: ``output``, ``page``, ``live`` (screens that are drawn again), ``shapes``,
``percentiles``, ``problems`` (errors as sentences), ``exits`` (exit statuses).
"""
