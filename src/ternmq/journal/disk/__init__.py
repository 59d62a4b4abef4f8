"""Files as the journal sees them: the only part of the core that touches the machine's files.

Reading order: ``port`` (what a disk can do), ``real``, ``memory`` (for tests and the simulator),
``faulty`` (a disk that fails as it is told to).

Invariants: what was synced is there after a power cut; what was not may be there or not.
"""
