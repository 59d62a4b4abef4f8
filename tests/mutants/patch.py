"""Unified diffs with a comment block: reading, applying, making them anew.

Applying is strict about the lines that a hunk removes and lenient about where they stand: line
numbers are only a hint, and up to two lines of context at either end of a hunk may have changed.
``refresh`` goes further, down to one line of context, since somebody looks at what it wrote.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CONTEXT_LINES: Final = 3
FUZZ_LINES: Final = 2
"""Context lines at each end of a hunk that may differ when a patch is applied."""
FIELDS: Final = ("Mutant", "Breaks", "Noticed")
"""What the comment block of each patch says."""
WORKLOAD: Final = "Workload"
"""The field with the simulator's kinds that find the mutant; without it, all kinds run in turn."""
TEST: Final = "Test"
"""The field with the test (a node of pytest) that finds the mutant; without it, the simulator does.
"""
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class PatchError(Exception):
    """A patch cannot be read, or does not fit the tree."""


@dataclass(slots=True, frozen=True)
class Hunk:
    """Lines to be replaced, with what stands around them.

    Attributes:
        start: Number of the first old line, from 1: a hint.
        lines: Each begins with " " (context), "-" (goes) or "+" (comes); no line ends.
    """

    start: int
    lines: tuple[str, ...]

    @property
    def old(self) -> list[str]:
        """The lines that must be there."""
        return [line[1:] for line in self.lines if line[0] != "+"]

    @property
    def new(self) -> list[str]:
        """The lines that are there afterwards."""
        return [line[1:] for line in self.lines if line[0] != "-"]

    @property
    def context(self) -> tuple[int, int]:
        """How many context lines the hunk begins and ends with."""
        changed = [at for at, line in enumerate(self.lines) if line[0] != " "]
        return changed[0], len(self.lines) - 1 - changed[-1]

    def trimmed(self, fuzz: int) -> Hunk:
        """Return the hunk without the outermost ``fuzz`` lines of context at each end."""
        before, after = self.context
        low, high = min(fuzz, before), min(fuzz, after)
        return Hunk(self.start + low, self.lines[low : len(self.lines) - high])


@dataclass(slots=True, frozen=True)
class Patch:
    """A mutant.

    Attributes:
        name: File name without ``.patch``.
        comments: The block at the top, without "# ".
        files: Path from the root of the tree -> hunks in order.
    """

    name: str
    comments: tuple[str, ...]
    files: dict[str, tuple[Hunk, ...]]

    def field(self, name: str) -> str:
        """Return what the comment block says under ``name:``, on one line; empty if nothing."""
        found: list[str] = []
        inside = False
        for line in self.comments:
            head = line.partition(":")[0]
            if head in (*FIELDS, WORKLOAD, TEST):
                inside = head == name
            if inside:
                found.append(line.removeprefix(f"{name}:").strip())
        return " ".join(found).strip()


def parse(name: str, text: str) -> Patch:
    """Read a patch.

    Raises:
        PatchError: It is not a comment block followed by a unified diff.
    """
    comments: list[str] = []
    files: dict[str, tuple[Hunk, ...]] = {}
    lines = text.splitlines()
    at = 0
    while at < len(lines) and (lines[at].startswith("#") or not lines[at].strip()):
        comments.append(lines[at].removeprefix("#").removeprefix(" ").rstrip())
        at += 1
    while at < len(lines):
        if not lines[at].startswith("--- "):
            at += 1  # "diff --git", "index": what git says besides
            continue
        if at + 1 >= len(lines) or not lines[at + 1].startswith("+++ "):
            raise PatchError(f"{name}: '---' without '+++' in line {at + 1}")
        path = lines[at + 1][4:].split("\t")[0].removeprefix("b/")
        hunks, at = _hunks(name, lines, at + 2)
        if not hunks or path in files:
            raise PatchError(f"{name}: no hunks for {path}, or named twice")
        files[path] = hunks
    if not files:
        raise PatchError(f"{name}: holds no diff")
    return Patch(name, tuple(comments), files)


def _hunks(name: str, lines: list[str], at: int) -> tuple[tuple[Hunk, ...], int]:
    hunks: list[Hunk] = []
    while at < len(lines) and (head := _HUNK.match(lines[at])) is not None:
        old, new = (int(count) if count else 1 for count in (head[2], head[4]))
        at += 1
        body: list[str] = []
        while old > 0 or new > 0:
            line = lines[at] if at < len(lines) else "\\"
            line = line or " "  # editors strip the space of an empty context line
            if line[0] not in " +-":
                raise PatchError(f"{name}: the hunk before line {at + 1} is cut short")
            old -= line[0] != "+"
            new -= line[0] != "-"
            body.append(line)
            at += 1
        if all(line[0] == " " for line in body):
            raise PatchError(f"{name}: a hunk before line {at + 1} changes nothing")
        hunks.append(Hunk(int(head[1]), tuple(body)))
    return tuple(hunks), at


def patched(patch: Patch, read: Callable[[str], str], fuzz: int = FUZZ_LINES) -> dict[str, str]:
    """Return the changed files' new text, by path.

    Args:
        patch: The mutant.
        read: Returns a file's text by its path; raises ``FileNotFoundError``.
        fuzz: How many context lines may be left out at each end of a hunk.

    Raises:
        PatchError: A file is missing, a hunk does not fit or fits in several places.
    """
    changed: dict[str, str] = {}
    for path, hunks in patch.files.items():
        try:
            lines = read(path).splitlines()
        except FileNotFoundError as error:
            raise PatchError(f"{patch.name}: there is no {path}") from error
        drift = 0
        for number, hunk in enumerate(hunks, 1):
            place = _place(lines, hunk, drift, fuzz)
            if place is None:
                raise PatchError(
                    f"{patch.name}: hunk {number} of {path} does not fit; "
                    "`python -m tests.mutants refresh` may find its place, else plant it again"
                )
            at, fitting = place
            drift = at - (fitting.start - 1) + len(fitting.new) - len(fitting.old)
            lines[at : at + len(fitting.old)] = fitting.new
        changed[path] = "\n".join(lines) + "\n"
    return changed


def _place(lines: list[str], hunk: Hunk, drift: int, fuzz: int) -> tuple[int, Hunk] | None:
    """Return where (index of the first old line) the hunk fits, trimmed as far as it must be."""
    for trim in range(fuzz + 1):
        fitting = hunk.trimmed(trim)
        if trim and fitting.lines == hunk.trimmed(trim - 1).lines:
            return None
        old = fitting.old
        if not old:
            return None  # nothing to hold on to
        places = [at for at in range(len(lines) - len(old) + 1) if lines[at : at + len(old)] == old]
        hinted = fitting.start - 1 + drift
        if hinted in places:
            return hinted, fitting
        if len(places) == 1:
            return places[0], fitting
        if places:
            return None  # ambiguous, and less context would not help
    return None


def render(patch: Patch, read: Callable[[str], str], new: dict[str, str]) -> str:
    """Return the text of a patch file: the comment block and the difference to the tree."""
    parts = [f"# {line}".rstrip() for line in patch.comments]
    while parts and parts[-1] == "#":
        parts.pop()
    parts.append("")
    for path in patch.files:
        parts += difflib.unified_diff(
            read(path).splitlines(),
            new[path].splitlines(),
            f"a/{path}",
            f"b/{path}",
            lineterm="",
            n=CONTEXT_LINES,
        )
    return "\n".join(parts) + "\n"


def refreshed(patch: Patch, read: Callable[[str], str]) -> str:
    """Return the patch's text as it would be written against the tree of today.

    Raises:
        PatchError: The lines that it changes are gone, or stand in several places.
    """
    return render(patch, read, patched(patch, read, fuzz=CONTEXT_LINES))


def load(folder: Path) -> list[Patch]:
    """Return the patches of a folder, by name.

    Raises:
        PatchError: See ``parse``.
    """
    return [
        parse(path.stem, path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.patch"))
    ]


def reader(root: Path) -> Callable[[str], str]:
    """Return what reads a file of a tree by its path from the root."""

    def read(path: str) -> str:
        return (root / path).read_text(encoding="utf-8")

    return read
