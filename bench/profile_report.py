"""The text of a kept profile, ``results/profiles/NAME.txt``."""

from __future__ import annotations

import io
import pstats
import time
from typing import Final

from core_kit import Figures
from core_machine import machine, versions

_TOP: Final = 40


def report(name: str, about: str, figures: Figures, found: pstats.Stats, of: str) -> str:
    """Return the report of a profile.

    Args:
        name: What was profiled.
        about: The same in a sentence, without its full stop.
        figures: What was measured meanwhile, with the profile's cost in it.
        found: The profile.
        of: The script, whose docstring says what a profile distorts.
    """
    text = io.StringIO()
    found.stream = text  # type: ignore[attr-defined]
    found.strip_dirs().sort_stats("tottime").print_stats(_TOP)
    head = [
        f"{name}: {about}",
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        f"{machine()}",
        f"{versions()}",
        "While it was profiled: "
        + ", ".join([f"{key} {value:,.1f}" for key, value in figures.items()]),
        f"Own time first. A profile makes calls dear: see bench/{of}.",
    ]
    body = [line.rstrip() for line in text.getvalue().splitlines()]
    return "\n".join([*head, "", *body[2:]]).rstrip() + "\n"
