"""The copy of another broker's journal: the disk side of a follower.

Entry point: ``copy.Copy.open`` opens the copy in a data folder, ``copy.Copy.make`` begins one.

Reading order: ``log.copy_file`` (what the disk says of a copy), ``copy`` (the copy that is open),
``files`` (the segment files that it writes), ``indexing`` (files of the index), ``known`` (records
by which it is compared), ``damaged`` (a copy that is copied again).

Invariants: the bytes are those of the other journal, and a copy appends no record of its own; COPY
says that bytes are durable only after they were synced; a copy is never cut below a commit mark
that it was told, unless an operator accepts that.
"""
