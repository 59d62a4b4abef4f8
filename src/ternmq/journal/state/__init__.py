"""STATE sets: the state of the views at a position of the journal, as records.

``sets`` writes and finds them. Invariant: a set counts only when all of it is durable.
"""
