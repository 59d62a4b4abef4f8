"""A Celery app whose tasks send with a client that was used when the module was imported."""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery

import ternmq.sync

TOPIC = os.environ["TASKS_TOPIC"]
folder = Path(os.environ["TASKS_FOLDER"])
for _name in ("queue", "done"):
    (folder / _name).mkdir(parents=True, exist_ok=True)

app = Celery("tasks", broker="filesystem://")
app.conf.broker_transport_options = {
    "data_folder_in": folder / "queue",
    "data_folder_out": folder / "queue",
    "processed_folder": folder / "done",
    "control_folder": folder / "control",
}
app.conf.worker_cancel_long_running_tasks_on_connection_loss = True
client = ternmq.sync.connect()
client.send(TOPIC, "import")


@app.task(name="charge")  # type: ignore[untyped-decorator]
def charge(number: int) -> None:
    client.send(TOPIC, f"charged-{number}-{os.getpid()}")
