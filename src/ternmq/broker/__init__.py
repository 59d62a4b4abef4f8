"""The broker's core: synchronous and deterministic.

Purpose: a command comes in with ``now``, is decided against the views, and becomes facts; the
``ledger`` appends these to the journal and applies them through the same table that the replay at
a start uses. Entry point: ``broker``.

Reading order:

* The surface: ``broker``, ``replies`` (the gate), ``start`` (how it is put together), ``clock``.
* How a fact is recorded: ``ledger`` with ``factkinds`` (how facts become bytes), ``views`` (what
  they change: the table), ``room`` (for sends) and ``wakes`` (which parked pulls to try again).
* What exists: ``catalog`` with ``firsts``, ``sessions``, ``gone`` and ``names`` (what the journal
  still names).
* What comes in: ``sending``, ``dedup`` with ``producer``, ``dedup_log``, ``dedup_runs`` and
  ``dedup_table``, ``given_ids``.
* Pulls: ``delivery`` with ``plan``, ``shared``, ``ordered``, ``lines`` and ``filter``; ``parking``
  with ``tokens`` and ``deadlines``.
* Settles and the ends of leases: ``settling``, ``retry``, ``lease``, ``leases``; ``timers``,
  ``ticking``.
* How facts change what a group holds: ``groupqueue`` with ``owed``, ``runs``, ``failures`` and
  ``failurestore``; ``history`` (how a row failed before); ``rowstate`` (the state of a row);
  ``discarded``.
* The other commands: ``clients`` with ``drains``, ``administration``, ``apps``, ``operating``,
  ``replaying``, ``queries``, ``ranges``, ``listings`` with ``sight`` and ``sortedkeys``, ``holds``.
* Transactions: ``preparing``, ``openings``, ``transactions``, ``writers``, ``undecided``,
  ``preparedrows``, ``transactionviews``.
* STATE and replay: ``statesets`` (when), ``admission``, ``statetypes``, ``stateobjects``,
  ``heldobjects``, ``heldpage``, ``shards``, ``transactionobjects``.
* What the broker does without a command: ``upkeep``, ``moving``, ``copied``, ``removal``,
  ``refreshing``, ``pinned`` (what keeps the oldest segment).
* Numbers: ``figures`` (sums over all groups, updated as they change), ``metrics``.

Invariants: nothing but ``ledger`` appends a record or applies a fact, and no part takes the whole
``Broker``; the same records give the same state; applying a record reads that record and the
object it names, nothing else; every reply carries the position it depends on and is released only
when that is committed; time, randomness and the disk are arguments; no set order reaches an effect;
every view has a cap and an expiry in broker time.
"""
