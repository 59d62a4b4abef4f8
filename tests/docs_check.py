"""Check that every link in the documents leads somewhere.

``python -m tests.docs_check`` reads README.md, ARCHITECTURE.md, CONTRIBUTING.md where there is one,
``changes/*.md`` and ``docs/**/*.md``. A link to a file must name one that exists; a link with a
``#fragment`` must name a heading of it. Links to other hosts are not followed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parent.parent

_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$", re.MULTILINE)
_ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def documents(root: Path) -> list[Path]:
    """Return the documents to check, sorted."""
    found = {*root.glob("*.md"), *root.glob("changes/*.md"), *root.glob("docs/**/*.md")}
    return sorted(found)


def anchors(text: str) -> set[str]:
    """Return the fragments that the headings of a document make."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        candidate, count = plain, 0
        while candidate in found:
            count += 1
            candidate = f"{plain}-{count}"
        found.add(candidate)
    return found


def broken_links(document: Path, root: Path) -> Iterator[str]:
    """Yield what is wrong with each link of the document that leads nowhere."""
    text = _CODE.sub("", _FENCE.sub("", document.read_text(encoding="utf-8")))
    for link in (*_LINK.findall(text), *_REFERENCE.findall(text)):
        if _ELSEWHERE.match(link):
            continue
        path, _, fragment = unquote(link).partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.is_relative_to(root.resolve()):
            yield f"{link}: leads out of the project"
        elif not target.exists():
            yield f"{link}: there is no such file"
        elif (
            fragment
            and target.suffix == ".md"
            and fragment not in anchors(target.read_text(encoding="utf-8"))
        ):
            yield f"{link}: {target.name} has no such heading"


def check(root: Path) -> list[str]:
    """Return a line for every broken link under ``root``."""
    return [
        f"{document.relative_to(root)}: {problem}"
        for document in documents(root)
        for problem in broken_links(document, root)
    ]


def main() -> int:
    """Print what is broken; return the exit status."""
    problems = check(ROOT)
    for problem in problems:
        print(problem)
    print(f"{len(documents(ROOT))} documents, {len(problems)} broken links")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
