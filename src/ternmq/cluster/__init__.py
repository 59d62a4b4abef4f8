"""Brokers that work together: who leads a broker group, and which brokers have its bytes.

Purpose: a broker group is a primary and its followers, which copy the primary's journal. This
package has what they share. Entry points: ``coordination``, the leadership record of a broker group
and the stores that may hold it; ``replication``, the rules by which copies are made. Reading order:
``coordination``, ``replication``.

Invariants: a broker without a cluster imports nothing of this package; what comes from another
process is checked before it is used.
"""
