"""What `serve`, a command and `--help` import: each package costs time and memory at a start.

Who adds a name here says in the commit what it costs: ``bench/start.py`` measures it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HELP = {"click", "google_crc32c", "msgspec", "typing_extensions"}
COMMAND = HELP | {"lz4", "opentelemetry", "xxhash", "zstandard"}
SERVE = (COMMAND - {"opentelemetry"}) | {"uvloop"}
"""Other people's packages that may be imported; what pip leaves out is not there either.

Nor are the packages of Python that ``_TELL`` names: only rare commands need them.
"""

_TELL = """
import sys
before = set(sys.modules)  # what the interpreter's own set-up imports
def tell():
    import json
    # What has no spec is no module that was found, but one that compiled code made for itself.
    new = set(sys.modules) - before
    names = {name for name in new if getattr(sys.modules[name], "__spec__", None) is not None}
    rare = {"difflib", "tempfile"}  # for misspelt names, and brokers that forget
    usual = set(sys.stdlib_module_names) - rare | {"ternmq"}
    outside = {name.partition(".")[0] for name in names} - usual
    ours = {name.removeprefix("ternmq.") for name in names if name.startswith("ternmq.")}
    print(json.dumps([sorted(outside), sorted(ours)]), file=sys.stderr)
"""
_COMMAND = """
from ternmq.cli import main
main.run(sys.argv[1:])
tell()
"""
_LISTENS = """
from ternmq.cli import main
from ternmq.server import app
start = app.Server.start
async def started(self):
    await start(self)
    self.core.loop.call_later(0, self.stopped.set_result, None)  # the loop has turned, then end
    tell()
app.Server.start = started
main.run(sys.argv[1:])
"""
_SENT_TO = """
import asyncio
from ternmq.cli import main
from ternmq.server import app
CLIENT = '''
import sys
from ternmq.sync import connect
with connect(sys.argv[1]) as client:
    for number in range(20):
        client.send("orders", {"number": number})
'''
start = app.Server.start
async def started(self):
    await start(self)
    async def sent():
        url = f"ternmq://127.0.0.1:{self.port}"
        client = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, url)
        assert await client.wait() == 0
        self.stopped.set_result(None)
    self.sending = asyncio.ensure_future(sent())
app.Server.start = started
try:
    main.run(sys.argv[1:])
finally:
    tell()  # its threads have ended
"""
_SCRAPED = """
import asyncio, threading
from ternmq.cli import main
from ternmq.server import app
start = app.Server.start
class Watch:  # asked for each module that is not there yet
    def find_spec(self, name, path, target=None):
        if name == "prometheus_client":
            print("imported by", threading.current_thread().name, file=sys.stderr)
        return None
async def started(self):
    await start(self)
    async def scraped():
        assert "prometheus_client" not in sys.modules
        sys.meta_path.insert(0, Watch())
        reader, writer = await asyncio.open_connection("127.0.0.1", self.http_port)
        writer.write(b"GET /metrics HTTP/1.1\\r\\n\\r\\n")
        assert b" 200 OK" in await reader.read()
        writer.close()
        self.stopped.set_result(None)
    self.scraping = asyncio.ensure_future(scraped())
app.Server.start = started
try:
    main.run(sys.argv[1:])
finally:
    tell()
"""


def told_by(code: str, *arguments: str, folder: Path) -> str:
    """Return what a process wrote to stderr; ``tell()`` was called in it."""
    environment = {key: value for key, value in os.environ.items() if "TERNMQ" not in key}
    done = subprocess.run(
        [sys.executable, "-c", _TELL + code, *arguments],
        env=environment | {"HOME": str(folder)}, cwd=folder,
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "\n[[" in f"\n{done.stderr}", done.stderr
    return done.stderr


def imported(code: str, *arguments: str, folder: Path) -> tuple[set[str], set[str]]:
    """Return the packages of others, and the modules and packages of ours, that were imported."""
    told = told_by(code, *arguments, folder=folder)
    outside, ours = json.loads([line for line in told.splitlines() if line.startswith("[[")][-1])
    return set(outside), set(ours)


def test_help_imports_no_client_and_no_broker(tmp_path: Path) -> None:
    outside, ours = imported(_COMMAND, "--help", folder=tmp_path)
    assert outside <= HELP
    assert ours.isdisjoint({"broker", "server", "wire", "client.client", "pipeline", "testing"})
    assert ours.isdisjoint({"settings", "journal", "record"})


# Nobody listens on port 1: it ends after everything that asks a broker was imported.
_NOBODY = ("--url", "ternmq://127.0.0.1:1", "--timeout", "1s")


def test_a_command_imports_no_broker(tmp_path: Path) -> None:
    outside, ours = imported(_COMMAND, "message", "get", "t", "id", *_NOBODY, folder=tmp_path)
    assert outside <= COMMAND
    assert {"client.client", "wire"} <= ours
    assert ours.isdisjoint({"broker", "server", "sync", "pipeline", "spark", "testing"})


@pytest.mark.parametrize(
    "command", ["topic list", "group list", "app list", "client list", "broker status"]
)
def test_a_command_that_administers_imports_nothing_that_moves_messages(
    tmp_path: Path, command: str
) -> None:
    outside, ours = imported(_COMMAND, *command.split(), *_NOBODY, folder=tmp_path)
    assert outside <= HELP
    assert {"client.admin.admin_client", "wire"} <= ours
    moves = {
        "client.client",
        "client.consumer.puller",
        "client.producer",
        "client.handler.handlers",
    }
    assert ours.isdisjoint(moves)
    assert ours.isdisjoint({"record", "journal", "settings", "broker", "server"})


@pytest.mark.parametrize("http", ["off", "127.0.0.1:0"])
def test_a_broker_imports_no_client(tmp_path: Path, http: str) -> None:
    arguments = ("dev", "--data", "data", "--listen", "127.0.0.1:0", "--http", http)
    outside, ours = imported(_LISTENS, *arguments, folder=tmp_path)
    assert (
        outside <= SERVE
    )  # not numpy, nor prometheus_client: see `ternmq.server.telemetry.late_imports`
    assert {"broker", "server"} <= ours
    assert ours.isdisjoint(
        {"client.client", "cluster", "sync", "pipeline", "spark", "testing", "demo"}
    )


def test_a_broker_on_a_small_folder_imports_no_numpy(tmp_path: Path) -> None:
    arguments = ("dev", "--data", "data", "--listen", "127.0.0.1:0", "--http", "off")
    outside, _ = imported(_SENT_TO, *arguments, folder=tmp_path)
    assert "numpy" in outside  # beside its first messages, before a turn needs it
    outside, _ = imported(_LISTENS, *arguments, folder=tmp_path)
    assert outside <= SERVE


def test_a_first_scrape_imports_what_writes_its_answer_beside_the_loop(tmp_path: Path) -> None:
    arguments = ("dev", "--data", "data", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    told = told_by(_SCRAPED, *arguments, folder=tmp_path)
    assert "imported by ternmq-read\n" in told
    assert "imported by MainThread" not in told


def test_applications_without_a_database_import_nothing_for_one() -> None:
    code = (
        "import sys, ternmq, ternmq.sync; ternmq.Client; sys.exit('ternmq.reliable' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


def test_a_client_imports_no_tracing() -> None:
    code = "import sys, ternmq.client.client; sys.exit('opentelemetry.context' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
