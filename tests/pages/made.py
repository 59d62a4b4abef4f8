"""Which pages, and which parts of pages, are made of the code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.pages import api, core, errors, http, metrics, spark, tables

DOCS: Final = Path(__file__).parents[2] / "docs"
_MARK: Final = re.compile(
    r"(<!-- begin (?P<name>\w+), made by `make docs` -->\n).*?(<!-- end (?P=name) -->)", re.DOTALL
)

PAGES: Final[dict[str, Callable[[], str]]] = {
    "reference/errors.md": errors.page,
    "reference/broker-tables.md": core.page,
    "reference/http.md": http.page,
    "reference/spark-options.md": spark.page,
    "reference/api/ternmq.md": api.ternmq_page,
    "reference/api/sync.md": api.sync_page,
    "reference/api/reliable.md": api.reliable_page,
    "reference/api/bulk.md": api.bulk_page,
    "reference/api/testing.md": api.testing_page,
}
"""Whole pages."""
PARTS: Final[dict[str, Callable[[], str]]] = {"metrics": metrics.tables, **tables.parts()}
"""What stands between markers, by its name."""


def renewed(text: str) -> str:
    """Return a page with the parts that are made of the code as they are now."""
    return _MARK.sub(lambda found: f"{found[1]}\n{PARTS[found['name']]()}\n{found[3]}", text)


def everything() -> dict[Path, str]:
    """Return the pages that have something made of the code, as they must be."""
    pages = {DOCS / name: make() for name, make in PAGES.items()}
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if path not in pages and _MARK.search(text):
            pages[path] = renewed(text)
    return pages
