"""Writes ``docs/reference/benchmarks.md`` and its plots from ``results/*.json``.

python bench/page.py            write them
python bench/page.py --check    exit with 1 if they are not what the results say
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import page_text
from page_plots import plots
from runner import RESULTS

DOCS: Final = Path(__file__).resolve().parent.parent / "docs" / "reference"
PAGE: Final = DOCS / "benchmarks.md"
PLOTS: Final = DOCS / "benchmarks"


def files() -> dict[Path, str]:
    """Return what is to be written, by path."""
    results = {path.stem: _measurements(path) for path in sorted(RESULTS.glob("*.json"))}
    rounds = [json.loads(path.read_text()) for path in sorted((RESULTS / "rounds").glob("*.json"))]
    counted = [
        json.loads(path.read_text()) for path in sorted((RESULTS / "instructions").glob("*.json"))
    ]
    drawn = plots(results, rounds)
    found = {PLOTS / f"{name}.svg": svg for name, svg in drawn.items()}
    found[PAGE] = page_text.page(results, rounds, set(drawn), counted)
    return found


def _measurements(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())["measurements"]
    return found


def main() -> int:
    """Write, or check."""
    made = files()
    if "--check" in sys.argv[1:]:
        wrong = [path for path, text in made.items() if not _is(path, text)]
        for path in wrong:
            print(f"{path}: not what bench/results says; run `make docs`", file=sys.stderr)
        return bool(wrong)
    PLOTS.mkdir(parents=True, exist_ok=True)
    for path in PLOTS.glob("*.svg"):
        if path not in made:
            path.unlink()
    for path, text in made.items():
        path.write_text(text)
    return 0


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
