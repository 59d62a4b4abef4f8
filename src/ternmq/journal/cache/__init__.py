"""Records read from sealed segments, kept for a while: ``cold``.

Invariant: its size is bounded in bytes.
"""
