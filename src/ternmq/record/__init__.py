"""The byte formats: the columnar batch of messages, and every kind of journal record.

Purpose: turn values into the bytes that are stored in the journal and sent on the wire, and back.
Entry points: the frame around every record is ``header``; each kind of record has a codec; the
batch is the unit of messages (``batch`` lists the modules of its parts).

Reading order:

* The frame: ``header``; ``frames`` (all records of a page at once).
* The batch: ``batch``, ``row``, ``batch_layout``, ``batch_binary``, ``hashes``; making one:
  ``batch_columns``, ``batch_encode``, ``compress``; reading one: ``batch_reader``,
  ``batch_verify``, ``batch_slice``.
* Kinds of records: ``messages``, ``moved``, ``facts``, ``replay``, ``control``, ``transactions``.
* Batches as Arrow: ``arrow``, ``coalesce``; many records at once: ``page_pieces``,
  ``page_columns``.

Invariants: little-endian, aligned to 8 bytes, versioned; each layout is shown as a ruler above its
codec and, word for word, in ``docs/format/``; lengths are checked before memory is allocated;
a stored batch is never changed. Most readers expect sound bytes: ``batch_verify`` checks batches
that come from outside, checksums protect the records.
"""
