"""Counts and latencies by minute.

Reading order: ``schema``, ``sketches`` (percentiles and distinct counts that can be added),
``stats``, ``job``.
"""
