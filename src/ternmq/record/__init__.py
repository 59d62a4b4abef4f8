"""Bytes: the columnar batch of messages, and every kind of journal record.

Purpose: turn values into the bytes that rest in the journal and travel on the wire, and back.
Entry points: the frame around every record is ``header``; each kind of record has a codec; the
batch is the unit of messages (``batch`` says where its parts are).

Reading order:

* The frame: ``header``; ``frames`` (all of a page together).
* The batch: ``batch``, ``row``, ``batch_layout``, ``batch_binary``, ``hashes``; making one:
  ``batch_columns``, ``batch_encode``, ``compress``; reading one: ``batch_reader``,
  ``batch_verify``, ``batch_slice``.
* Kinds of records: ``messages``, ``moved``, ``facts``, ``replay``, ``control``, ``transactions``.
* Batches as Arrow: ``arrow``, ``coalesce``; many records at once: ``page_pieces``,
  ``page_columns``.

Invariants: little-endian, aligned to 8 bytes, versioned; each layout stands as a ruler above its
codec and, word for word, in ``docs/format/``; lengths are checked before memory is taken; damaged
bytes raise an error of ``model.errors`` and nothing else; a stored batch is never changed.
"""
