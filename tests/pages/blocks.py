"""What a page shows: blocks of Python, of commands, and what they print.

A block ``output`` behind a block ``python`` is what that one prints; without one it prints nothing.
In a block ``console`` a line that begins with ``$ `` is a command (``> `` goes on with it), the
lines behind it are what it prints. ``...`` stands for any text; alone on a line for any lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BLOCK: Final = re.compile(r"^```(python|output|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(slots=True)
class Step:
    """Something to run.

    Attributes:
        line: Of the page.
        kind: ``python`` or ``console``.
        code: The block, or one command.
        output: What it prints.
    """

    line: int
    kind: str
    code: str
    output: str = ""


def steps(page: Path) -> list[Step]:
    """Return what is to be run of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found: list[Step] = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match[1] == "console":
            found += _commands(match[2], line + 1)
        elif match[1] == "python":
            found.append(Step(line, "python", match[2]))
        else:
            assert found, f"{page.name}: line {line}: output of nothing"
            assert found[-1].kind == "python", f"{page.name}: line {line}: no Python before it"
            assert not found[-1].output, f"{page.name}: line {line}: the second output"
            found[-1].output = match[2]
    return found


def _commands(block: str, first_line: int) -> list[Step]:
    found: list[Step] = []
    for number, line in enumerate(block.splitlines()):
        if line.startswith("$ "):
            found.append(Step(first_line + number, "console", line[2:]))
        elif (line == ">" or line.startswith("> ")) and found and not found[-1].output:
            found[-1].code += "\n" + line[2:]
        else:
            assert found, f"line {first_line}: a block of commands begins with `$ `"
            found[-1].output += line + "\n"
    return found


def agrees(shown: str, printed: str) -> bool:
    """Tell whether what was printed is what the page shows."""
    pattern = re.escape(shown).replace(re.escape("...\n"), "(?s:.*)").replace(r"\.\.\.", ".*")
    return re.fullmatch(pattern, printed) is not None
