"""Clients of ternmq.sync in a program whose main thread has ended; the broker has a name."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ternmq.sync
from ternmq.testing import broker

AT_ITS_END = """
import sys, ternmq.sync
client = ternmq.sync.connect(sys.argv[1])
for number in range(10):
    client.send_soon("soon", number)
"""
IN_A_THREAD = """
import sys, threading, ternmq.sync
client = ternmq.sync.connect(sys.argv[1])
main = threading.main_thread()
def work():
    main.join()
    for number in range(10):
        client.send("soon", number, timeout=20)
threading.Thread(target=work).start()
"""

IN_A_POOL = """
import concurrent.futures, sys, threading, ternmq.sync
client = ternmq.sync.connect(sys.argv[1])
pool = concurrent.futures.ThreadPoolExecutor(1)
def ended():
    try:
        concurrent.futures.ThreadPoolExecutor(1).submit(int).result()
    except RuntimeError:
        return True
    return False
def work():
    while not ended():
        pass
    for number in range(10):
        client.send("soon", number, timeout=20)
pool.submit(work)
"""


@pytest.mark.parametrize(
    "program", [AT_ITS_END, IN_A_THREAD, IN_A_POOL], ids=["at its end", "in a thread", "in a pool"]
)
def test_a_broker_with_a_name_is_found(program: str) -> None:
    with broker(manual=False) as one, ternmq.sync.connect(one.url) as client:
        for _ in range(3):
            done = subprocess.run(
                [sys.executable, "-c", program, f"ternmq://localhost:{one.port}"],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert (done.returncode, done.stderr) == (0, "")
        assert len(list(client.read("soon"))) == 30
