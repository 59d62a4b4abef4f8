"""A shop on Flask that uses a client before its server forks: connected, and a message sent."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading

from flask import Flask

import ternmq
import ternmq.sync

TOPIC = os.environ["SHOP_TOPIC"]
THREADS = int(os.environ.get("SHOP_THREADS", "0"))

client = ternmq.sync.connect().connect()
client.send(TOPIC, "import")
waiting = client.send_soon(TOPIC, "import-soon")
app = Flask(__name__)


def _work(number: int) -> None:
    with contextlib.suppress(ternmq.ClientClosed):  # at the end of the process
        for n in itertools.count():
            client.send(TOPIC, f"thread{number}-{n}")


# Threads that the master has before it forks: they send all the time.
for _number in range(THREADS):
    threading.Thread(target=_work, args=(_number,), daemon=True).start()


@app.get("/order/<name>")
def order(name: str) -> dict[str, object]:
    receipt = client.send(TOPIC, f"order-{name}")
    return {"pid": os.getpid(), "id": receipt.id}


@app.get("/soon/<name>")
def soon(name: str) -> dict[str, object]:
    client.send_soon(TOPIC, f"soon-{name}")
    return {"pid": os.getpid()}


@app.get("/worker")
def worker() -> dict[str, object]:
    """Say which worker this is, and what became of the message that may have waited at the fork."""
    try:
        return {"pid": os.getpid(), "offset": waiting.result(5).offset}
    except ternmq.ClientForked as error:
        return {"pid": os.getpid(), "error": str(error)}
