"""A worker as a process; the fixture ``start`` begins one."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.black_box.process import DEADLINE, wait_until

if TYPE_CHECKING:
    from tests.cli.conftest import Processes


class Worker:
    """A worker of ``shop:client``, and what it says."""

    def __init__(self, processes: Processes, *arguments: object) -> None:
        self.folder = processes.folder
        self._log = self.folder / "log"
        with self._log.open("wb") as log:
            self.process = processes.start(
                "worker", "shop:client", *arguments,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._log.read_text()

    def says(self, pattern: str, times: int = 1) -> list[str]:
        """Wait until it has said something so often; return what was found."""
        wait_until(
            lambda: len(re.findall(pattern, self.said)) >= times, f"{pattern} in {self._log}"
        )
        return re.findall(pattern, self.said)

    def has(self, name: str) -> None:
        wait_until((self.folder / name).exists, name)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)


Start = Callable[..., Worker]


def begun(worker: Worker, count: int = 1) -> list[int]:
    """Wait until so many processes run their handlers; return their ids."""
    worker.says(r"handler \w+: ", count)
    return [int(one) for one in re.findall(r"worker shop:client, process (\d+)", worker.said)]
