from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from io import StringIO

import click
import pytest
from rich.console import Console

from ternmq.cli.reach.parameters import ranges_of, read_ahead, read_due, read_when
from ternmq.cli.terminal import output
from ternmq.cli.terminal.percentiles import percentile
from ternmq.client.forms import values
from ternmq.model.printing import printable


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (0.0000012, "1.2us"), (0.0123, "12.3ms"), (1.25, "1.2s"), (3, "3s"),
        (59.6, "1m"), (90, "1m30s"), (3600, "1h"), (100_000, "1d3h"), (-5, "-5s"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert output.span(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0B"), (1023, "1023B"), (1024, "1KiB"), (1536, "1.5KiB"), (200 << 20, "200MiB"),
     (5 << 40, "5TiB"), (5000 << 40, "5000TiB")],
)  # fmt: skip
def test_sizes(count: int, text: str) -> None:
    assert output.size(count) == text


def test_times_are_utc() -> None:
    moment = datetime.fromisoformat("2026-01-31T14:30:00.123456+02:00")
    assert values.iso(moment) == "2026-01-31T12:30:00.123Z"
    assert values.iso(None) is None


def test_a_table_for_awk(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("a name", "n", "last"), [("x y", 5, "two words"), ("", 10, ""), (None, 0, "z")])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["a_name", "n"], ["x_y", "5"], ["-", "10"], ["-", "0"]
    ]  # fmt: skip
    assert lines[1].endswith("two words")
    assert not any(line.endswith(" ") for line in lines)


def test_an_empty_table_is_a_header_and_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("a", "b"), [], "nothing here")
    out, err = capsys.readouterr()
    assert (out, err) == ("a  b\n", "nothing here\n")


LONG = ("orders-of-" + "c" * 100 + "-eu-1", "billing-" + "d" * 110 + "-2")
"""Names of a topic and a group that are wider than a terminal."""
LISTS = {
    "group lag": (
        ("topic", "group", "lag", "ready", "leased", "retrying", "dead", "members", "state"),
        (*LONG, 5, 0, 0, 0, 0, 0, "running"),
        ("members", "state", "leased"),
    ),
    "group list": (
        ("group", "topic", "lag", "state", "mode"),
        (*LONG, 5, "running", "shared"),
        ("mode",),
    ),
    "topic list": (("topic", "queues", "retention"), (LONG[0], 1, "7d"), ()),
    "app list": (
        ("app", "owner", "grants"),
        ("shop", "team shop", f"consume:{LONG[0]}:{LONG[1]} produce:*"),
        (),
    ),
}


def drawn_lines(name: str, width: int) -> tuple[list[str], bool]:
    """Return the lines of a list in a terminal, and whether texts in it are shortened."""
    columns, row, spare = LISTS[name]
    terminal = Console(file=StringIO(), width=width, color_system=None)
    fits = output.fitted(columns, [row], spare, width, folds=True)
    made, is_shortened = output.drawn(fits.columns, fits.rows, terminal)
    with terminal.capture() as printed:
        terminal.print(made, crop=False)
    return [line.rstrip() for line in printed.get().splitlines()], is_shortened


@pytest.mark.parametrize("name", LISTS)
def test_very_long_names_fit_into_a_terminal(name: str) -> None:
    lines, is_shortened = drawn_lines(name, 80)
    assert max(map(len, lines)) <= 80, lines
    text = "".join("".join(lines).split())
    if is_shortened:
        assert "orders-of-" in text
        assert "-eu-1" in text
        assert "running" in text or name != "group list"  # no other column makes room for a name
    else:
        assert LONG[0] in text
        assert LONG[1] in text
    wide, is_shortened = drawn_lines(name, 400)
    assert not is_shortened
    assert LONG[0] in " ".join(wide)


def test_a_shortened_text_keeps_its_two_ends() -> None:
    assert output.shortened("orders", 6) == "orders"
    assert output.shortened("orders-eu-1", 8) == "orde…u-1"
    assert output.shortened("orders-eu-1", 1) == "…"


def test_a_pipe_gets_very_long_names_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("topic", "group", "lag"), [(*LONG, 5)])
    assert capsys.readouterr().out.splitlines()[1].split() == [*LONG, "5"]


def test_documents(capsys: pytest.CaptureFixture[str]) -> None:
    moment = datetime(2026, 1, 31, tzinfo=UTC)
    output.json_line({"at": moment, "for": timedelta(minutes=1), "all": [moment], "of": (1, None)})
    assert capsys.readouterr().out == (
        '{"at":"2026-01-31T00:00:00.000Z","for":60.0,"all":["2026-01-31T00:00:00.000Z"],'
        '"of":[1,null]}\n'
    )


def test_what_came_from_others_moves_no_cursor() -> None:
    assert printable("plain grün 漢字") == "plain grün 漢字"
    assert printable("a\x1b[2Jb\r\n\x9b\u202e\ud800") == r"a\x1b[2Jb\r\n\x9b\u202e\ud800"


NOW = 1_769_870_000.0


@pytest.mark.parametrize(
    ("text", "ago"), [("10m", 600), ("-10m", 600), ("1h30m", 5400), ("0", 0), ("now", 0)]
)
def test_times_ago(text: str, ago: float) -> None:
    assert read_when(text, NOW).timestamp() == NOW - ago


def test_times_themselves() -> None:
    assert read_when("2026-01-31T14:30:00Z") == datetime(2026, 1, 31, 14, 30, tzinfo=UTC)
    assert read_when("2026-01-31").tzinfo is not None
    clock = read_when("14:30", NOW)
    assert (clock.hour, clock.minute, clock.second) == (14, 30, 0)
    assert abs(clock.timestamp() - NOW) < 86_400


@pytest.mark.parametrize(
    "text", ["", "soon", "25:00", "14:99", "10", "2026-13-01", "99999999d", "2026-", "1e9", "١٠m"]
)
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="14:30"):
        read_when(text, NOW)


def test_times_ahead_and_due() -> None:
    assert read_ahead("10m", NOW).timestamp() == NOW + 600
    assert read_ahead("now", NOW).timestamp() == read_due("now", NOW).timestamp() == NOW
    for read in (read_ahead, read_due):
        assert read("2031-01-31T14:30Z", NOW) == datetime(2031, 1, 31, 14, 30, tzinfo=UTC)
    for text in ("soon", "25:00", "-10m", "", "2026-13-01", "99999999d"):
        with pytest.raises(ValueError, match="from now"):
            read_ahead(text, NOW)
    for text in ("soon", "25:00", "-10m", "", "2026-13-01"):
        with pytest.raises(ValueError, match="is not a time such as 14:30"):
            read_due(text, NOW)
    with pytest.raises(ValueError, match="is a duration: write --delay 10m"):
        read_due("10m", NOW)


def test_a_time_of_today_that_is_past_is_not_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:  # NOW is 2026-01-31T14:33:20Z
        assert read_due("14:34", NOW) == datetime(2026, 1, 31, 14, 34, tzinfo=UTC)
        with pytest.raises(ValueError, match="give the date too, as in 2026-01-31T14:33"):
            read_due("14:33", NOW)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_time_of_today_has_the_offset_of_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        noon = datetime(2026, 3, 29, 10, tzinfo=UTC).timestamp()  # after the change to summer time
        assert read_when("01:30", noon) == datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
        assert read_when("13:00", noon) == datetime(2026, 3, 29, 11, 0, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_offsets() -> None:
    assert ranges_of(["7", "10-12", "11"]) == [7, 10, 11, 12]
    for wrong in ("", "-", "a", "3-1", "0-9999999", str(2**63)):
        with pytest.raises(click.UsageError):
            ranges_of([wrong])


def test_percentiles() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, share) for share in (50, 90, 99)] == [50, 90, 99]
    assert percentile([5.0], 99) == 5.0
    assert percentile([], 50) == 0.0
