"""The model of replication: its rules as a small transition system, explored state by state.

Brokers with journals, one register that changes by compare-and-set, acknowledgements and swaps that
come late or never, crashes that lose what was not synced. `explore` visits every state within the
bounds of a run; where it ends, there is no order of events within these bounds that violates an
invariant. The simulator runs the real code in random orders instead; neither replaces the other.

Reading order: ``state``, ``run`` (bounds, and which rule is broken), ``rules``, ``reign``,
``following``, ``events``, ``steps`` (what may happen next), ``invariants``, ``codes``, ``explore``,
``runs``, ``mutants``, ``trace``, ``kept``, ``__main__``. What is modelled and what is not: README.

Invariants: states are immutable; a step changes nothing that its broker cannot see, but for
``answered``, which records what clients were told and which no broker reads; nothing reads a clock
or a random number, so a run finds the same states in the same order each time.
"""
