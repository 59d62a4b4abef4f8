"""What the broker remembers of transactions.

Reading order: ``writers`` (who may prepare, and what was decided), ``undecided`` (prepared
batches without a decision) with ``duetimes``, ``checked`` (undecided transactions with check-back),
``producergroups`` (how these are checked), ``shares`` (what one app may have of all that),
``preparedrows`` (where prepared rows are stored), ``stateobjects`` (how STATE stores all of them).

Invariants: a decision is remembered as long as its writer; rows of an aborted batch are never
handed out.
"""
