"""Builds what ``peers`` needs of others and no package of Python has: clients, and some servers.

``native/go`` and ``native/java`` are our sources; they name the modules that they use, with their
versions. What is built is kept in a folder of its own, by what it was built of: the second run
builds nothing. ``BENCH_CACHE`` names another folder than ``~/.cache/ternmq-bench``.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

NATIVE: Final = Path(__file__).with_name("native")
_BUILD_S: Final = 900.0


class Absent(Exception):
    """Something is not there, or cannot be built: what needs it is left out."""


def cache_folder() -> Path:
    """Return where builds are kept."""
    given = os.environ.get("BENCH_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "ternmq-bench"


def program(name: str) -> str:
    """Return the path of a program.

    Raises:
        Absent: It is not installed.
    """
    found = shutil.which(name)
    if found is None:
        raise Absent(f"no {name} on this machine")
    return found


def built(name: str, sources: list[Path], build: Callable[[Path], None]) -> Path:
    """Return the folder with what ``build`` makes of the sources; it is made once.

    Raises:
        Absent: It cannot be built.
    """
    told = hashlib.sha256()
    for source in sorted(sources):
        told.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    kept = cache_folder()
    target = kept / f"{name}-{told.hexdigest()[:12]}"
    if target.exists():
        return target
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept, prefix=".building-") as path:
        making = Path(path) / "made"
        making.mkdir()
        print(f"building {name} in {target}", file=sys.stderr)
        build(making)
        making.rename(target)
    return target


def run(command: list[str], at: Path) -> None:
    """Run a step of a build.

    Raises:
        Absent: It went wrong.
    """
    done = subprocess.run(
        command, cwd=at, capture_output=True, text=True, timeout=_BUILD_S, check=False
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Absent(f"`{' '.join(command[:2])}` failed: {said[-1] if said else 'no word'}")


# -------------------------------------------------------------------------------------------- Go


@cache
def go_client() -> list[str]:
    """Return the command of the clients in Go."""
    return [str(_go("go-clients", "."))]


@cache
def nats_server() -> str:
    """Return the path of NATS's server: the installed one, else one that Go builds."""
    found = shutil.which("nats-server")
    return found or str(_go("nats-server", "github.com/nats-io/nats-server/v2"))


def _go(name: str, package: str) -> Path:
    go = program("go")
    at = NATIVE / "go"

    def build(into: Path) -> None:
        run([go, "build", "-trimpath", "-o", str(into / "program"), package], at)

    sources = [*at.glob("*.go"), at / "go.mod", at / "go.sum"]
    return built(name, sources if package == "." else sources[-2:], build) / "program"


def go_modules() -> dict[str, str]:
    """Return the versions of the clients in Go."""
    text = (NATIVE / "go" / "go.mod").read_text()
    direct = re.findall(r"^\t\S+/(\S+?)(?:/v\d+)? (v\S+)$", text, re.MULTILINE)
    return dict(direct)


# ------------------------------------------------------------------------------------------ Java


@cache
def java_server(name: str) -> list[str]:
    """Return the command that runs Java with a peer's classes."""
    return [program("java"), "-cp", f"{java_folder(name) / 'jars'}/*"]


@cache
def java_client(name: str, main: str) -> list[str]:
    """Return the command of a client in Java."""
    folder = java_folder(name)
    return [
        program("java"), "-Xms1g", "-Xmx1g", f"-Duser.home={folder}",
        "-cp", f"{folder / 'classes'}:{folder / 'jars'}/*", main,
    ]  # fmt: skip


@cache
def java_folder(name: str) -> Path:
    """Return the folder with a peer's jars and the classes of its client."""
    javac, maven = program("javac"), program("mvn")
    at = NATIVE / "java" / name
    ours = [NATIVE / "java" / "Load.java", *at.glob("*.java")]
    settings = list(at.glob("*logback.xml"))

    def build(into: Path) -> None:
        jars = into / "jars"
        plugin = "org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies"
        run([maven, "-q", "-B", plugin, "-DincludeScope=runtime", f"-DoutputDirectory={jars}"], at)
        command = [javac, "-d", str(into / "classes"), "-cp", f"{jars}/*", *map(str, ours)]
        run(command, at)
        for one in settings:
            shutil.copy(one, into / "classes")

    return built(name, [*ours, *settings, at / "pom.xml"], build)


def jar_version(name: str, jar: str) -> str:
    """Return the version of a jar, by its file's name."""
    for path in (java_folder(name) / "jars").glob(f"{jar}-*.jar"):
        return path.stem.removeprefix(f"{jar}-")
    raise Absent(f"no {jar}")
