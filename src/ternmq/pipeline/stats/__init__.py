"""Counts and latencies by minute.

Reading order: ``schema``, ``sketches`` (percentiles and distinct counts that can be added), their
bytes: ``kll``, ``hll`` (with the hash ``murmur``); ``stats``, ``job``.
"""
