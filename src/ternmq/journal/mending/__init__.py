"""Damaged bytes of a journal that is open: they are found, and replaced by those of another copy.

Reading order: ``scrub`` (reading records again, and what is damaged), ``rounds`` (which records are
read next), ``progress`` (the file SCRUB), ``patch`` (bytes that were checked take the place of the
damaged ones). What a donor's bytes must fulfil is in ``ternmq.cluster.replication.mending``.

Invariants: only positions below the commit mark and below the durable mark are read or written;
what a patch replaces is kept under ``repair/`` first; a crash in a patch leaves damage, which is
found again, or the right bytes.
"""
