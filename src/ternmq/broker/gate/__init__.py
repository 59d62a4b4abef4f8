"""The gate that holds answers back until their records are committed: ``replies``.

Invariant: no answer leaves before the position that it depends on.
"""
