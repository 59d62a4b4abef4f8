"""Ends what the demo started when the demo itself was ended so that it could not: by SIGKILL.

Run as a script, with nothing of TernMQ: ``python -I watch.py [FOLDER]``. On standard input it is
told what began (``+PID``) and what ended (``-PID``), and ``done`` when nothing is left to do. When
the input ends without that, it kills what is left and removes the folder, if one is given.
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
