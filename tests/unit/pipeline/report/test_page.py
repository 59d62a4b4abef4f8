from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from ternmq.model.errors import TableError
from ternmq.pipeline.report.data import day_of, gather
from ternmq.pipeline.report.page import page
from ternmq.pipeline.report.plots import Series, lines
from ternmq.pipeline.tables.folder import Folder
from tests.unit.pipeline.report_day import DAY, MIDNIGHT, make

NOW = MIDNIGHT + 86_400_000_000


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return gather(make(tmp_path_factory.mktemp("day"), 300, first=700), DAY)


class Tags(HTMLParser):
    """Sees to it that what is opened is closed."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.seen = set()

    def handle_starttag(self, tag, _attributes):
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.row("R16")
def test_the_page_needs_nothing_else_and_is_well_formed(whole):
    html = page(whole, NOW)
    tags = Tags()
    tags.feed(html)
    assert not tags.open
    assert not tags.seen & {"script", "link", "img", "iframe", "b1"}
    assert "http" not in html
    assert "url(" not in html
    plots = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(plots) == 5
    for plot in plots:
        assert len(ET.fromstring(plot)) > 3
    assert "prefers-color-scheme:dark" in html


@pytest.mark.row("R16")
def test_it_tells_rates_latency_lag_failures_and_the_verdict(whole):
    html = page(whole, NOW)
    counts = whole.whole.counts
    for told in (counts["stored"], counts["done"], counts["dead"]):
        assert f"{told:,}".replace(",", "\u202f") in html
    for text in (
        "orders · billing", "TimeoutError: no answer of &lt;number&gt; after &lt;number&gt; s",
        "+11% on the day before", "new", "-61%", "not ok", "lost <b>1</b>", "14:20",
        "unverified", "Messages a second", "p99", "Not delivered yet",
    ):  # fmt: skip
        assert text in html, text
    assert "has not run" not in html


@pytest.mark.row("R16")
def test_what_users_wrote_is_shown_as_text(whole):
    html = page(whole, NOW)
    assert "<b>17</b>" not in html
    assert "&lt;b&gt;&lt;number&gt;&lt;/b&gt;" in html


def test_counts_are_those_of_the_minutes(whole):
    assert sum(one.counts["stored"] for one in whole.steps if one) == whole.whole.counts["stored"]
    senders = [one.counts["stored"] for (_, group), one in whole.rows.items() if group is None]
    assert sum(senders) == whole.whole.counts["stored"]
    assert whole.lags["orders", "billing"][-1] == whole.rows["orders", "billing"].lag


def test_a_short_day_fills_the_plot_and_without_an_audit_that_is_said(tmp_path):
    report = gather(make(tmp_path / "short", 8, first=600, audit=False), DAY)
    assert (report.step_us, len(report.begins)) == (60_000_000, 8)
    html = page(report, NOW)
    assert "the audit has not run" in html
    assert "10:00" in html


def test_a_day_of_which_nothing_is_known(tmp_path):
    with pytest.raises(TableError, match="which does not exist or is empty"):
        gather(Folder(str(tmp_path / "none")), DAY)
    with pytest.raises(TableError, match="no statistics of 2026-11-22"):
        gather(make(tmp_path / "other", 3), "2026-11-22")


def test_days_by_name():
    assert day_of("today", NOW) == "2026-11-22"
    assert day_of("Yesterday", NOW) == "2026-11-21"
    assert day_of("2026-01-02", NOW) == "2026-01-02"
    with pytest.raises(ValueError, match="isoformat"):
        day_of("Monday", NOW)


def test_a_line_with_holes_and_one_without_points():
    series = [Series("a", [1.0, None, 2.0, 3.0]), Series("b", [None] * 4)]
    plot = lines(["1", "2", "3", "4"], series, str)
    assert plot.count('class="l0"') == plot.count('class="p0"') == 1
    assert ">b<" not in plot
    assert lines(["1"], [Series("a", [None])], str) == '<p class="none">nothing to show</p>'
    assert "<svg" in lines(["1"], [Series("a", [0.0])], str, log=True)
