"""The columnar batch: how messages travel and rest.

Reading order: ``layout`` (the ruler), ``batch`` (what others import), ``reader``, ``pick`` (some
rows of a column), ``row``, ``encode``, ``columns``, ``binary``, ``verify``, ``slice``,
``compress``, ``hashes``.

Invariant: nobody changes a batch; its bytes are the same on the wire and on disk.
"""
