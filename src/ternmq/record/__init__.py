"""The byte formats: the columnar batch of messages, and every kind of journal record.

Purpose: turn values into the bytes that are stored in the journal and sent on the wire, and back.

Reading order, from the bottom up; a room imports only rooms that are named above it:

* ``batch``: the unit of messages.
* ``fact``: the frame around every record, and a codec for each kind of record.
* ``page``: many records at once.
* Batches as Arrow: ``arrow``, ``coalesce``.

Invariants: little-endian, aligned to 8 bytes, versioned; each layout is shown as a ruler above its
codec and, word for word, in ``docs/format/``; lengths are checked before memory is allocated;
a stored batch is never changed. Most readers expect sound bytes: ``batch.verify`` checks batches
that come from outside, checksums protect the records.
"""
