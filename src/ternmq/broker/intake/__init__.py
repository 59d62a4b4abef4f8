"""Decisions about what is sent.

Reading order: ``sends`` with ``given_ids`` (rows that were sent before under the same id) and
``levels`` (the level of a batch);
``scheduling`` (rows with due times, and their cancellation); what a batch in a
transaction must be: ``prepared``; what every commit does: ``committing``; transactions of writers:
``prepares``, ``commits``; blocks of a topic's numbers: ``numbers``.

Invariants: the offset is decided before the record is written; a batch is stored whole or not at
all; a duplicate gets the first receipt again.
"""
