"""Processes that take numbers: ``python -m tests.black_box.takers FILE PATIENCE``, with TERNMQ_URL.

For each line of stdin, a count, one takes so many numbers of the topic ``orders``, appends them to
the file (8 bytes each), and writes a line: how many came from the reserve so far. A taker writes
its first line when it has its first block.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from array import array
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.black_box.process import DEADLINE

TOPIC = "orders"


class Taker:
    """A process that takes numbers; a context manager, which ends it.

    Args:
        url: The broker's.
        file: Where it writes its numbers.
        patience: Seconds after which it takes from its reserve.
    """

    def __init__(self, url: str, file: Path, patience: float) -> None:
        self._file = file
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.black_box.takers", str(file), str(patience)],
            env={**os.environ, "TERNMQ_URL": url},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate(timeout=DEADLINE)
            assert self._process.returncode == 0
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def begin(self, count: int) -> None:
        """Have it take numbers."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()

    def wait(self) -> int:
        """Wait until it is done; return how many numbers came from its reserve so far."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        return int(line)

    def taken(self) -> array[int]:
        """Return all numbers that it has taken."""
        found = array("q")
        found.frombytes(self._file.read_bytes())
        return found


def main() -> None:
    """Take numbers as stdin says."""
    import ternmq.sync
    from ternmq.reliable import Ids

    with ternmq.sync.connect() as client, Path(sys.argv[1]).open("ab", buffering=0) as file:
        ids = Ids(client, TOPIC, patience=float(sys.argv[2]))
        ids.start()
        print(0, flush=True)
        for line in sys.stdin:
            file.write(array("q", [ids.next() for _ in range(int(line))]).tobytes())
            print(ids.stats().fallbacks, flush=True)


if __name__ == "__main__":
    main()
