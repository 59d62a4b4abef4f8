"""docs/operate/pipeline.md names every job, and every setting as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from ternmq.pipeline.running.jobs import chosen, names

PAGE = Path(__file__).parents[3] / "docs" / "operate" / "pipeline.md"


def rows():
    for job in chosen(names()):
        for one in job.settings:
            default = str(one.default).lower() if isinstance(one.default, bool) else one.default
            shown = f"`{default}`" if default != "" else ""
            yield f"| `{job.name}.{one.name}` | {shown} | {one.meaning} |"


def test_every_setting_stands_there_as_it_is():
    text = PAGE.read_text(encoding="utf-8")
    _, _, behind = text.partition("| setting | default | meaning |\n|---|---|---|\n")
    table, _, _ = behind.partition("\n\n")
    assert table.splitlines() == list(rows()), "the table is:\n" + "\n".join(rows())


def test_every_job_stands_there():
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in names() if f"\n| `{name}` | " not in text] == []
