"""What a consumer group holds of a queue: its cursor, and the rows below it that are owed.

Reading order: ``progress`` (how facts change it), ``runs`` (ranges of rows that are treated
alike), ``lease``, ``owed``, ``rowstate`` (the state of one row), ``given`` (which rows it was given
before); failures: ``retry`` (when a row comes again), ``failedrows``, ``failurestore``,
``history``; what the mode of a group decides:
``mode``, ``order`` (which rows wait for which), for ordered groups ``keyorder`` and ``lines``,
for those that lock a queue ``queueorder``;
``figures`` (sums over all groups); STATE: ``shards``, ``cursors``, ``heldpage``, ``stamps`` (which
facts a chunk holds already).

Invariants: every row below the cursor is done unless it is owed; nothing here knows the journal,
a topic's name or the time.
"""
