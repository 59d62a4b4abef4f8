"""Settings from defaults < ``ternmq.toml`` < ``TERNMQ_*`` < flags; the later wins, key by key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from ternmq.model.errors import SettingsError
from ternmq.model.secret import HIDDEN, Secret
from ternmq.settings import rules
from ternmq.settings.fields import ALL_FIELDS, FIELDS, LIMIT_FIELDS, LIMITS, Field
from ternmq.settings.settings import DEFAULTS, FILE, Mode, Settings

PREFIX: Final = "TERNMQ_"
CONFIG: Final = "TERNMQ_CONFIG"
NOT_OURS: Final = frozenset(
    {CONFIG}
    | {f"TERNMQ_{name}" for name in ("URL", "APP", "INSTANCE", "TOKEN", "CONTEXT", "TABLES")}
)
"""Variables that are not settings: the path of the file, and those of clients and commands."""
_OF_KUBERNETES: Final = re.compile(
    r"TERNMQ_(?:\w+?_)??"
    r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)\Z"
)
"""Variables that Kubernetes sets in pods for Services named ``ternmq``, ``ternmq-http`` etc."""
_SHOWN: Final = 40


def load(
    path: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    mode: Mode = Mode.SERVE,
) -> Settings:
    """Return checked settings.

    Args:
        path: The file; None: the file that TERNMQ_CONFIG names, or ``ternmq.toml`` in the current
            folder if there is one (tests read no file unless it is named).
        environ: The environment; None: no variables.
        flags: Key (``listen``, ``limits.sessions``) -> text or value; None is "not given".
        mode: The use that the broker is started for.

    Raises:
        SettingsError: one line that says what is wrong, where, and what to do.
    """
    environ = environ or {}
    values: dict[str, object] = {}
    places: dict[str, str] = {}
    named = path or environ.get(CONFIG)
    if named is None and mode is not Mode.TESTING and Path(FILE).is_file():
        named = FILE
    if named is not None:
        for key, value in _of_file(named):
            values[key], places[key] = _value(key, value, named), named
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and not _is_of_others(variable, environ[variable]):
            field = _of_variable(variable)
            values[field.key] = _value(field.key, environ[variable], variable)
            places[field.key] = variable
    for key, value in (flags or {}).items():
        if value is not None:
            places[key] = _GIVEN_BY.get(mode, "the command line")
            values[key] = _value(key, value, places[key])
    return rules.check(_made(values, mode), places)


_GIVEN_BY: Final = {Mode.TESTING: "broker(settings=...)"}
"""Name of the source of flags in error texts, if it is not a command line."""


def _of_file(path: str) -> Iterator[tuple[str, object]]:
    try:
        with Path(path).open("rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from error
    for key, value in found.items():
        if key == LIMITS and isinstance(value, dict):
            for limit, number in value.items():
                yield f"{LIMITS}.{limit}", number
        elif key == LIMITS:
            raise SettingsError(
                f"{key!r} in {path} is a table: write [{LIMITS}], and each limit below it"
            )
        elif isinstance(value, dict) and key not in FIELDS:
            near = _nearest(key, [LIMITS])
            why = "did you mean [limits]?" if LIMITS in near else f"the only table is [{LIMITS}]"
            flat = _flat(key, value)
            why = f"write {flat} above all tables" if flat else why
            raise SettingsError(f"{key!r} in {path} is not a setting; {why}")
        else:
            yield key, value


def _is_of_others(variable: str, value: str) -> bool:
    """Return whether a variable is for clients, or was set by Kubernetes."""
    if variable in NOT_OURS:
        return True
    found = _OF_KUBERNETES.match(variable)
    if found is None or any(variable == field.variable for field in ALL_FIELDS.values()):
        return False
    # Kubernetes writes a URL here; any other value is an attempt at a setting.
    return found[1] != "PORT" or "://" in value


def _of_variable(variable: str) -> Field:
    for field in ALL_FIELDS.values():
        if field.variable == variable:
            return field
    known = [field.variable for field in ALL_FIELDS.values()]
    raise SettingsError(
        f"{variable} in the environment is not a setting{_nearest(variable, known)}"
    )


def _value(key: str, value: object, where: str) -> object:
    field = ALL_FIELDS.get(key)
    if field is None:
        flat = _flat(key, value) if isinstance(value, Mapping) else ""
        bare = key.removeprefix(f"{LIMITS}.")
        if bare != key and bare in FIELDS:
            flat = f"{bare!r} above all tables"
        why = f"; write {flat}" if flat else _nearest(key, list(ALL_FIELDS))
        raise SettingsError(f"{key!r} in {where} is not a setting{why}")
    try:
        return field.read(value)
    except ValueError as error:
        shown = HIDDEN if field.kind is Secret else repr(value)[:_SHOWN]
        raise SettingsError(f"{key} = {shown} in {where} {error}") from error


def _flat(key: str, table: Mapping[str, object]) -> str:
    """Return the settings that a table's keys probably mean, for an error; empty if none."""
    names = [
        name for one in table for name in (f"{key}.{one}", f"{key}_{one}") if name in ALL_FIELDS
    ]
    return " and ".join(f'"{name}"' if "." in name else name for name in names)


def _nearest(name: str, known: list[str]) -> str:
    from difflib import get_close_matches  # for a wrong name only

    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return (
        f"; did you mean {near[0]}?"
        if near
        else "; the page reference/settings of the documentation lists them"
    )


def _made(values: Mapping[str, object], mode: Mode) -> Settings:
    base = msgspec.structs.replace(Settings(mode=mode), **DEFAULTS[mode])
    own = {field.name: values[key] for key, field in FIELDS.items() if key in values}
    limits = {field.name: values[key] for key, field in LIMIT_FIELDS.items() if key in values}
    return msgspec.structs.replace(
        base, **own, limits=msgspec.structs.replace(base.limits, **limits)
    )
