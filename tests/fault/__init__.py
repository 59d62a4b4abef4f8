"""Faults on real processes, files and disks. ``README.md``: which scenario has which test.

``worker`` is a broker core on a real folder with a small shell around it and writes a history of
what was answered, on another file system. It is killed, its disk fails, fills or loses power. Then
``verify``, another process, opens what is left and compares it with the history. In reading order:
``messages`` (what is sent), ``history``, ``shell``, ``traffic`` and ``scenarios`` (what the worker
does), ``worker``, ``verify``; ``processes``, ``tools`` and ``volumes`` are the tests' hands.

``FAULT_POINTS`` (default 12; `make fault`: 25): kill points per call, half as many of rarer calls.
``FAULT_CYCLES`` (default 5): power cuts per file system.
``FAULT_ALL_BYTES=1``: every damage at every byte instead of one of three.
"""
