"""Where a Python of a version comes from."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.pythons import debian

_USABLE = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"


@dataclass(frozen=True, slots=True)
class Found:
    """A Python that tests can run with.

    Attributes:
        version: ``3.13``.
        python: The command, as it is called where the tests run.
        folder: The Debian folder that it is in; None: the machine itself.
    """

    version: str
    python: str
    folder: Path | None = None


class NotHad(Exception):
    """No Python of a version can be had on this machine; the text says why."""


def find(version: str, *, debian_only: bool = False) -> Found:
    """Return a Python of a version: the machine's, or one in a Debian folder that is made for it.

    Raises:
        NotHad: There is none.
    """
    if not debian_only:
        for python in _candidates(version):
            if _version_of(python) == version:
                return Found(version, python)
    why = debian.available(version)
    if why:
        raise NotHad(f"no python{version} on this machine, and {why}")
    folder = debian.make(version)
    return Found(version, "python3", folder)


def _candidates(version: str) -> Iterator[str]:
    for name in (f"python{version}", "python3"):
        path = shutil.which(name)
        if path is not None:
            yield path
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python")), reverse=True)


def _version_of(python: str) -> str:
    """Return the version of a Python that can make virtual environments; empty if it cannot."""
    try:
        done = subprocess.run(
            [python, "-c", _USABLE], capture_output=True, text=True, check=False, timeout=60
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
