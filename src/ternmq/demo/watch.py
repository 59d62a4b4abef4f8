"""Ends what the demo started if the demo itself could not, because it was killed by SIGKILL.

Run as a script that imports nothing of TernMQ: ``python -I watch.py [FOLDER]``. Standard input
lists processes that started (``+PID``) and ended (``-PID``), and ``done`` when there is nothing to
do. If the input ends without that, it kills the remaining ones and removes the folder, if given.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from contextlib import suppress


def main(folders: list[str]) -> None:
    """Watch until standard input ends."""
    running: set[int] = set()
    for line in sys.stdin:
        word = line.strip()
        if word == "done":
            return
        if word.startswith("+"):
            running.add(int(word[1:]))
        elif word.startswith("-"):
            running.discard(int(word[1:]))
    for pid in running:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
