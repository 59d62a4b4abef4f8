"""What the server counts and logs; it knows no connection.

Reading order: ``counters``, ``rates``, ``families`` (numbers with names), ``exposition``
(Prometheus's text), ``audit`` (who changed what), ``logs``, ``late_imports`` (libraries that are
imported at their first use).
"""
