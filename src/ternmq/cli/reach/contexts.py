"""Named contexts: a broker, an app and its token, stored in the user's configuration folder.

The file holds tokens: only its owner can read it. It is always written as a whole, so that it is
never half there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import msgspec

from ternmq import files
from ternmq.cli.terminal.exits import ExitCode, Failed
from ternmq.cli.terminal.problems import near, not_found

_FILE: Final = "contexts.json"


class Context(msgspec.Struct, omit_defaults=True):
    """A broker, an app, and the archive's folder."""

    url: str
    app: str = ""
    token: str = ""
    tables: str = ""

    def __repr__(self) -> str:
        return f"Context({self.url!r}, app={self.app!r}, token={'***' if self.token else ''!r})"


class Contexts(msgspec.Struct, omit_defaults=True):
    """The content of the file."""

    current: str = ""
    contexts: dict[str, Context] = {}


def path() -> Path:
    """Return the path of the file, in ``$XDG_CONFIG_HOME/ternmq`` or ``~/.config/ternmq``."""
    return Path(click.get_app_dir("ternmq")) / _FILE


def read() -> Contexts:
    """Return the contexts; none if there is no file.

    Raises:
        Failed: The file cannot be read, or others can read the tokens in it.
    """
    file = path()
    try:
        data = file.read_bytes()
        mode = file.stat().st_mode
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise Failed(f"{file} cannot be read: {error.strerror}") from error
    try:
        found = msgspec.json.decode(data, type=Contexts)
    except msgspec.DecodeError as error:
        raise Failed(
            f"{file} is damaged ({error}): correct it or remove it", ExitCode.USAGE
        ) from None
    if mode & 0o077 and any(one.token for one in found.contexts.values()):
        raise Failed(f"{file} contains tokens, and other users can read it: chmod 600 {file}")
    return found


def unknown(name: str, kept: Contexts) -> Failed:
    """Return the failure for an unknown context, with the command that lists the existing ones."""
    text = f"there is no context {name!r}{near(name, kept.contexts)}"
    return not_found(f"{text} (`ternmq context list` shows them)")


def write(contexts: Contexts) -> None:
    """Store the contexts.

    Raises:
        Failed: The file cannot be written.
    """
    file = path()
    data = msgspec.json.format(msgspec.json.encode(contexts), indent=2) + b"\n"
    try:
        files.make_folder(file.parent, 0o700)
        files.write(file, data, files.PRIVATE)
    except OSError as error:
        raise Failed(f"{file} cannot be written: {error.strerror}") from error
