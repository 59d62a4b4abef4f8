"""Pages of a fixed size: whatever the terminal's size, the last line is on it, and tables share."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ternmq.cli.terminal.output import Cell, fitted
from ternmq.cli.terminal.page import Page, Part, Size, lay_out, shares

SIZES = (Size(80, 24), Size(60, 15), Size(120, 40), Size(40, 8), Size(20, 4), Size(10, 1))
FIGURES = [(f"figure {n}", "one of five, and rather long " * 3) for n in range(5)]
TOPICS: list[tuple[Cell, ...]] = [(f"a-topic-{n}", 4, 12_345, 1.5) for n in range(40)]
GROUPS: list[tuple[Cell, ...]] = [
    (f"a-topic-{n}", "a-group", 0, 0, 0, 0, 0, 2.5, 3, "running") for n in range(40)
]
GROUP_COLUMNS = ("topic", "group", "lag", "ready", "leased", "retrying", "dead", "out/s",
                 "members", "state")  # fmt: skip
SPARE = ("members", "state", "retrying", "leased", "dead", "ready")
STALE = "these figures are 12.5s old: no broker at ternmq://127.0.0.1:7117: " + "say where " * 9


def page(topics: int = 40, groups: int = 40, stale: str = "", turned: int | None = 0) -> Page:
    parts = (
        Part(("topic", "queues", "messages", "in/s"), TOPICS[:topics]),
        Part(GROUP_COLUMNS, GROUPS[:groups], SPARE),
    )
    return Page(FIGURES, parts, "now  q ends it", stale, turned)


def seen(what: Page, size: Size, *, fill: bool = True) -> list[str]:
    """Return the lines of a page, as a terminal of this size shows them."""
    text = io.StringIO()
    console = Console(file=text, width=size.columns, height=size.lines, color_system=None)
    console.print(lay_out(what, size, fill=fill))
    return [line.rstrip() for line in text.getvalue().split("\n")[:-1]]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("topics", "groups"), [(40, 40), (5, 3), (40, 0), (0, 40), (0, 0)])
def test_a_page_is_as_long_as_the_terminal(size: Size, topics: int, groups: int) -> None:
    lines = seen(page(topics, groups), size)
    assert len(lines) == size.lines
    assert lines[-1].startswith("now  q ends it"[: size.columns - 1])


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("topics", "groups"), [(40, 40), (5, 3), (0, 0)])
@pytest.mark.parametrize("fill", [True, False])
def test_the_notice_of_old_figures_is_on_the_screen(
    size: Size, topics: int, groups: int, fill: bool
) -> None:
    lines = seen(page(topics, groups, STALE), size, fill=fill)
    assert any(line.startswith("these") for line in lines[-3:])
    assert len(lines) <= size.lines


@pytest.mark.parametrize("size", SIZES[:3], ids=str)
def test_topics_and_groups_get_their_part(size: Size) -> None:
    lines = seen(page(), size)
    (split,) = [at for at, line in enumerate(lines) if line.startswith("topic") and "lag" in line]
    topics = [line for line in lines[:split] if line.startswith("a-topic-")]
    groups = [line for line in lines[split:] if line.startswith("a-topic-")]
    assert 0 <= len(topics) - len(groups) <= 1
    assert groups
    assert f"and {40 - len(topics)} more (page 1 of {-(-40 // len(topics))})" in lines
    assert f"and {40 - len(groups)} more (page 1 of {-(-40 // len(groups))})" in lines


def test_five_topics_and_three_groups_fit_on_an_ordinary_terminal() -> None:
    lines = seen(page(5, 3), Size(80, 24))
    assert len([line for line in lines if line.startswith("a-topic-")]) == 8
    assert not [line for line in lines if "more" in line]


def test_turning_the_page_shows_every_row() -> None:
    shown: set[str] = set()
    for turn in range(40):
        shown |= {line.split()[0] for line in seen(page(40, 0, "", turn), Size(60, 15))
                  if line.startswith("a-topic-")}  # fmt: skip
    assert shown == {str(row[0]) for row in TOPICS}
    assert "page" not in "\n".join(seen(page(turned=None), Size(60, 15)))  # where no key turns it


def test_a_narrow_terminal_goes_without_columns_and_says_which() -> None:
    lines = seen(page(2, 2), Size(70, 24))
    (names,) = [line for line in lines if line.startswith("topic") and "lag" in line]
    assert names.split()[-1] == "state"
    assert lines[-1].endswith("no room for members")
    wide = seen(page(2, 2), Size(120, 24))
    assert wide[-1] == "now  q ends it"
    (names,) = [line for line in wide if line.startswith("topic") and "lag" in line]
    assert tuple(names.split()) == GROUP_COLUMNS


@pytest.mark.parametrize("columns", [160, 100, 72, 60, 50, 40])
def test_every_column_is_shown_or_named_at_any_width(columns: int) -> None:
    rows: list[tuple[Cell, ...]] = [
        (f"a-topic-{n}", "a-group", 2000, 100, 10, 1, 0, 25.5, 3, "running") for n in range(4)
    ]
    what = Page(FIGURES, (Part(GROUP_COLUMNS, rows, SPARE),),
                "2026-01-31T14:30:00.000Z  q quits", turn=", space shows the next page",
                )  # fmt: skip
    lines = seen(what, Size(columns, 24))
    (at,) = [at for at, line in enumerate(lines) if line.startswith("topic")]
    text = " ".join(lines[at:])
    assert [name for name in GROUP_COLUMNS if name not in text] == []
    assert "q quits" in text
    assert "space" not in text  # all rows are there
    assert "…" not in text
    assert "2000" in lines[at + 1]


@pytest.mark.parametrize("columns", [120, 50, 40])
def test_the_key_for_the_next_page_is_named_if_there_is_one(columns: int) -> None:
    part = Part(("topic", "queues", "messages", "in/s"), TOPICS)
    what = Page((), (part,), "now  q quits", turned=0, turn=", space shows the next page")
    assert "q quits, space shows the next page" in " ".join(seen(what, Size(columns, 20)))
    one_screen = seen(what, Size(columns, 50))
    assert not [line for line in one_screen if "space" in line]
    assert len([line for line in one_screen if line.startswith("a-topic-")]) == 40


def test_texts_become_narrower_before_a_number_is_cut() -> None:
    rows: list[tuple[Cell, ...]] = [("a-topic-with-a-long-name", "a-group", 123_456, 1.5)]
    lines = seen(Page((), (Part(("topic", "group", "lag", "in/s"), rows),), "now"), Size(30, 24))
    assert any(line.split()[1:] == ["a-group", "123456", "1.5"] for line in lines)


def test_a_note_is_above_the_last_line() -> None:
    part = Part(GROUP_COLUMNS, GROUPS[:2], SPARE)
    lines = seen(Page((), (part,), "now", note="what readers should know " * 3), Size(40, 24))
    assert lines[-5:] == [
        "what readers should know what readers",
        "should know what readers should know",
        "no room for members, state, retrying,",
        "leased, dead",
        "now",
    ]


@pytest.mark.parametrize(
    ("wanted", "lines", "given"),
    [([3, 3], 10, [3, 3]), ([9, 1], 6, [5, 1]), ([1, 9], 6, [1, 5]), ([9, 9], 5, [3, 2]),
     ([9], 4, [4]), ([], 4, []), ([4, 4], 0, [0, 0]), ([4, 4], 1, [1, 0])],
)  # fmt: skip
def test_shares(wanted: list[int], lines: int, given: list[int]) -> None:
    assert shares(wanted, lines) == given


def test_the_last_column_may_be_folded_between_words_only() -> None:
    rows = [("one", 12, "several words here that go on and on")]
    assert fitted(("a", "b", "c"), rows, ("b",), 35, folds=True).left_out == []
    assert fitted(("a", "b", "c"), rows, ("b",), 35).left_out == ["b"]
    assert fitted(("a", "b", "c"), rows, ("b",), 34, folds=True).left_out == ["b"]
    assert fitted(("a", "b", "c"), rows, (), 5).columns == ["a", "b", "c"]
