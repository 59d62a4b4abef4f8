"""Real servers that import an application, fork, and serve it with threads.

The application has connected and sent at import: what its workers find is a used client.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.black_box.process import DEADLINE, BrokerProcess, free_port, wait_until
from tests.black_box.users import Blocking

pytestmark = pytest.mark.row("B18")

ORDERS = 120
SHOP = "tests.black_box.forking.shop"


@contextlib.contextmanager
def running(
    command: Sequence[str], folder: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in a session of its own; leaving ends it as an operator does."""
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=os.environ | environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE)
    except BaseException:
        print(said(folder))
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # whatever is left
        process.wait()


def said(folder: Path) -> str:
    return (folder / "server.log").read_text(encoding="utf-8", errors="replace")


def ask(port: int, path: str) -> dict[str, Any]:
    """Return the answer to a request; one that hangs fails."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    try:
        line.request("GET", path)
        answer = line.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        told: dict[str, Any] = json.loads(body)
        return told
    finally:
        line.close()


def serves(port: int) -> bool:
    try:
        ask(port, "/worker")
    except (OSError, http.client.HTTPException):
        return False
    return True


def stored(dev: BrokerProcess, topic: str) -> list[str]:
    with Blocking(dev.url) as user:
        return sorted(one for one in user.values(topic) if not one.startswith("thread"))


def order_all(port: int, workers: int) -> None:
    """Order from many threads at one time, until every worker has served some of them."""
    served: set[int] = set()

    def order(n: int) -> str:
        answer = ask(port, f"/order/{n}")
        served.add(answer["pid"])
        ask(port, f"/soon/{n}")
        return str(answer["id"])

    with ThreadPoolExecutor(12) as threads:
        assert len(set(threads.map(order, range(ORDERS)))) == ORDERS

        def all_served() -> bool:
            asked = threads.map(lambda _: ask(port, "/worker"), range(12))
            served.update(one["pid"] for one in asked)
            return len(served) >= workers

        wait_until(all_served, f"served by {workers} workers")


def expected() -> list[str]:
    sent = [f"{kind}-{n}" for kind in ("order", "soon") for n in range(ORDERS)]
    return sorted(["import", "import-soon", *sent])


@pytest.mark.parametrize("threads", [0, 2])
def test_gunicorn_preloads(threads: int, dev: BrokerProcess, topic: str, tmp_path: Path) -> None:
    pytest.importorskip("gunicorn", reason="needs gunicorn")
    pytest.importorskip("flask", reason="needs flask")
    port = free_port()
    command = [
        sys.executable, "-m", "gunicorn", "--preload", "--workers", "3", "--threads", "4",
        "--bind", f"127.0.0.1:{port}", "--graceful-timeout", "20", "--no-control-socket",
        f"{SHOP}:app",
    ]  # fmt: skip
    environment = {"TERNMQ_URL": dev.url, "SHOP_TOPIC": topic, "SHOP_THREADS": str(threads)}
    with running(command, tmp_path, environment) as process:
        wait_until(lambda: serves(port), "serving")
        order_all(port, 3)
    assert process.returncode == 0, said(tmp_path)
    assert "Traceback" not in said(tmp_path), said(tmp_path)
    assert stored(dev, topic) == expected(), said(tmp_path)


def _uwsgi() -> list[str]:
    """Return how uWSGI is run here: built for this Python, or the system's with its plugin."""
    own = Path(sys.executable).with_name("uwsgi")
    if own.exists():
        return [str(own)]
    found = shutil.which("uwsgi")
    if found is not None:
        plugin = [found, "--plugin", "python3"]
        version = subprocess.run(
            [*plugin, "--python-version"], capture_output=True, text=True, timeout=DEADLINE,
            check=False,
        ).stdout  # fmt: skip
        if version.strip() == platform.python_version() and sys.base_prefix == "/usr":
            return [*plugin, "--virtualenv", sys.prefix]
    pytest.skip("needs uwsgi for this Python")


def test_uwsgi_forks_after_the_import(dev: BrokerProcess, topic: str, tmp_path: Path) -> None:
    """With Python's hooks, as the guide says.

    As it comes, uWSGI forks without them. Then a child can find the interpreter itself locked, by
    a thread that only the parent has: one run of three did not serve, with no client's doing.
    """
    pytest.importorskip("flask", reason="needs flask")
    port = free_port()
    command = [
        *_uwsgi(), "--http-socket", f"127.0.0.1:{port}", "--master", "--processes", "3",
        "--enable-threads", "--threads", "4", "--module", f"{SHOP}:app", "--die-on-term",
        "--need-app", "--pythonpath", str(Path(__file__).parents[2]),
        "--py-call-uwsgi-fork-hooks",
    ]  # fmt: skip
    environment = {"TERNMQ_URL": dev.url, "SHOP_TOPIC": topic}
    with running(command, tmp_path, environment):
        wait_until(lambda: serves(port), "serving")
        order_all(port, 3)
    assert "Traceback" not in said(tmp_path), said(tmp_path)
    assert stored(dev, topic) == expected(), said(tmp_path)


def test_celery_prefork(dev: BrokerProcess, topic: str, tmp_path: Path) -> None:
    pytest.importorskip("celery", reason="needs celery")
    environment = {
        "TERNMQ_URL": dev.url, "TASKS_TOPIC": topic, "TASKS_FOLDER": str(tmp_path / "queue"),
    }  # fmt: skip
    name = "tests.black_box.forking.tasks"
    command = [
        sys.executable, "-m", "celery", "-A", name, "worker", "--pool", "prefork",
        "--concurrency", "2", "--loglevel", "INFO", "--without-gossip", "--without-mingle",
    ]  # fmt: skip
    ask_all = f"from {name} import charge\nfor n in range(20): charge.delay(n)"
    with running(command, tmp_path, environment):
        subprocess.run(
            [sys.executable, "-c", ask_all],
            env=os.environ | environment,
            timeout=DEADLINE,
            check=True,
        )

        def charged() -> list[str]:
            return [one for one in stored(dev, topic) if one.startswith("charged")]

        wait_until(lambda: len(charged()) >= 20, "all charged")
        found = [re.fullmatch(r"charged-(\d+)-(\d+)", one) for one in charged()]
    assert sorted(int(one[1]) for one in found if one) == list(range(20))
    assert len({one[2] for one in found if one}) == 2
    assert "Traceback" not in said(tmp_path), said(tmp_path)
