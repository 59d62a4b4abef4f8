"""Bytes: the columnar batch of messages, and every kind of journal record.

Purpose: turn values into the bytes that rest in the journal and travel on the wire, and back.
Entry points: the frame around every record is ``header``; each kind of record has a codec; the
batch is the unit of messages (``batch`` says where its parts are). Reading order: ``header``, then
the batch, then the kinds of records.

Invariants: little-endian, aligned to 8 bytes, versioned; each layout stands as a ruler above its
codec and, word for word, in ``docs/format/``; lengths are checked before memory is taken; damaged
bytes raise an error of ``model.errors`` and nothing else; a stored batch is never changed.
"""
