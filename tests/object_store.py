"""A MinIO on loopback: an object store as S3 is one, for tests of the pipeline.

``minio`` is taken from the path; else it is built with Go, once for all tests of a machine, into
``~/.cache/ternmq-tests`` (some minutes, with a network): ``python -m tests.object_store``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.black_box.process import free_port

MODULE: Final = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"
CACHE: Final = Path.home() / ".cache" / "ternmq-tests"
BUILD_S: Final = 1500
AGAIN_S: Final = 3600
_LOG: Final = CACHE / "minio.log"
"""What a build that failed printed."""
START_S: Final = 60
USER: Final = "ternmq"
PASSWORD: Final = "ternmq-secret"
BUCKET: Final = "tables"


def program() -> Path | None:
    """Return MinIO's program; None if it is not there and cannot be built."""
    found = shutil.which("minio")
    if found:
        return Path(found)
    CACHE.mkdir(parents=True, exist_ok=True)
    made = CACHE / MODULE.rpartition("@")[2] / "minio"
    with (CACHE / "minio.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be building it
        if not made.exists() and shutil.which("go") and not _failed_lately():
            _build(made.parent)
    return made if made.exists() else None


def _build(folder: Path) -> None:
    environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-mod=mod"}
    # Not optimised: these tests ask for little, and the build takes a third less of the processor.
    command = ["nice", "-n", "10", "go", "install", "-gcflags=all=-N -l", "-ldflags=-s -w", MODULE]
    with _LOG.open("wb") as log:
        try:
            done = subprocess.run(
                command, env=environment, check=False, timeout=BUILD_S, stdout=log, stderr=log
            )
        except subprocess.TimeoutExpired:
            log.write(b"it took too long\n")
            return
    if done.returncode == 0:
        _LOG.unlink()


def _failed_lately() -> bool:
    """Return whether a build failed in the last hour: the next test would only fail again."""
    return _LOG.exists() and time.time() - _LOG.stat().st_mtime < AGAIN_S


@contextmanager
def running(minio: Path, folder: Path) -> Iterator[dict[str, str]]:
    """Run MinIO with an empty bucket; yield the environment that names it."""
    port, console = free_port(), free_port()
    (folder / BUCKET).mkdir(parents=True)  # in this form a folder is a bucket
    address = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [minio, "server", "--address", f"127.0.0.1:{port}",
         "--console-address", f"127.0.0.1:{console}", folder],
        env={**os.environ, "MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + START_S
        while True:
            with suppress(OSError):
                urllib.request.urlopen(f"{address}/minio/health/live", timeout=1).close()
                break
            assert server.poll() is None, "MinIO ended"
            assert time.monotonic() < until, "MinIO does not answer"
            time.sleep(0.05)
        yield {
            "AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": PASSWORD,
            "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true",
        }  # fmt: skip
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    print(program() or "there is no Go to build MinIO with")
