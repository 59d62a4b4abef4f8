"""Reading stored records: ``store`` (by place and offset), ``lookup`` (by id, key and time).

Invariant: a read that would wait for the disk raises ``WouldBlock`` before it changed anything.
"""
