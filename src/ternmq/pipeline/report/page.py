"""The report of a day: one self-contained HTML page with plots.

    Path("report.html").write_text(page(gather(Folder("/data/tables"), "2026-11-21"), now_us))

The page has no script and makes no requests; it follows the reader's light or dark theme.
Everything in it that users wrote is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from ternmq.model.words import counted
from ternmq.pipeline.report.data import Point, Report
from ternmq.pipeline.report.plots import Bar, Series, bars, lines
from ternmq.pipeline.report.style import STYLE

_MINUTE_US: Final = 60_000_000
_SHOWN_LAGS: Final = 6
_SHOWN_CAUSES: Final = 12
_SHOWN_BUCKETS: Final = 40
_GOOD: Final = frozenset({"ok"})
_BAD: Final = frozenset({"lost", "doubled", "expired"})
_QUIET: Final = frozenset({"ok", "open"})
"""Verdicts that are counted, and not listed."""


def page(report: Report, now_us: int) -> str:
    """Return the page.

    Args:
        report: Its content.
        now_us: When it is made, µs since 1970.
    """
    sections = [
        _tiles(report),
        '<div class="two">',
        _card("Messages a second", _about_rates(report), _rates(report)),
        _card("Time from send to done", "over all groups; logarithmic", _latencies(report)),
        _card("Not delivered yet", "at the end of each step, the groups with the greatest lag",
              _lags(report)),
        _card("Failures", "attempts that failed, and messages that became dead letters",
              _failures(report)),
        "</div>",
        _card("Topics and groups", "the whole day", _topics(report)),
        _card("Causes of dead letters",
              "by exception and message; numbers, ids, texts and paths are left out",
              _causes(report)),
        _card("Audit", "messages that producers sent, and those stored, handled and archived",
              _audit(report)),
    ]  # fmt: skip
    made = datetime.fromtimestamp(now_us // 1_000_000, UTC)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>TernMQ, {report.day}</title><style>{STYLE}</style></head><body><main>"
        f"<header><h1>{report.day}</h1><p>TernMQ, all times in UTC; made {made:%Y-%m-%d %H:%M}. "
        f"A step in the plots is {_duration(report.step_us)}.</p></header>"
        + "".join(sections)
        + "</main></body></html>\n"
    )


def _card(title: str, about: str, inside: str) -> str:
    return f'<section><h2>{title}</h2><p class="about">{about}</p>{inside}</section>'


def _tiles(report: Report) -> str:
    counts, latency = report.whole.counts, report.whole.latency
    told = [
        ("stored", _number(counts["stored"]), _bytes(counts["stored_bytes"])),
        ("done", _number(counts["done"]), f"{_number(counts['delivered'])} delivered"),
        ("failed attempts", _number(counts["retried"] + counts["dead"]),
         f"{_share(counts['retried'] + counts['dead'], counts['delivered'])} of deliveries"),
        ("dead", _number(counts["dead"]), _causes_of(len(report.dead))),
        ("send to done, p99", _duration(latency["p99"]) if latency else "–",
         f"median {_duration(latency['p50'])}" if latency else ""),
        ("audit", *_verdict(report)),
    ]  # fmt: skip
    tiles = "".join(
        f'<div class="tile"><b>{escape(name)}</b><strong{_coloured(value)}>{escape(value)}</strong>'
        f"<span>{escape(note)}</span></div>"
        for name, value, note in told
    )
    return f'<div class="tiles">{tiles}</div>'


def _causes_of(count: int) -> str:
    return counted(count, "cause") if count else ""


def _coloured(value: str) -> str:
    mood = {"ok": "good", "not ok": "bad"}.get(value)
    return f' class="{mood}"' if mood else ""


def _times(report: Report) -> list[str]:
    shown = "%H:%M" if report.step_us >= _MINUTE_US else "%H:%M:%S"
    return [f"{datetime.fromtimestamp(at // 1_000_000, UTC):{shown}}" for at in report.begins]


def _each(report: Report, name: str, scale: float = 1.0) -> list[float | None]:
    return [0.0 if one is None else one.counts[name] * scale for one in report.steps]


def _about_rates(report: Report) -> str:
    if report.step_us < _MINUTE_US:
        return "over all topics; deliveries count once for each group"
    return "over all topics; deliveries count for each group"


def _rates(report: Report) -> str:
    scale = 1_000_000 / report.step_us
    series = [
        Series("stored", _each(report, "stored", scale), area=True),
        Series("delivered", _each(report, "delivered", scale)),
        Series("done", _each(report, "done", scale)),
    ]
    return lines(_times(report), series, _rate)


def _latencies(report: Report) -> str:
    series = [
        Series(name, [None if one is None else one.latency.get(name) for one in report.steps])
        for name in ("p50", "p90", "p99")
    ]
    return lines(_times(report), series, _duration, log=True)


def _lags(report: Report) -> str:
    def most(values: Iterable[int | None]) -> int:
        return max((value for value in values if value is not None), default=0)

    worst = sorted(report.lags.items(), key=lambda one: (-most(one[1]), one[0]))[:_SHOWN_LAGS]
    series = [Series(f"{topic} · {group}", values) for (topic, group), values in worst]
    return lines(_times(report), series, _number)


def _failures(report: Report) -> str:
    series = [
        Series("failed, retried later", _each(report, "retried"), area=True),
        Series("dead", _each(report, "dead")),
        Series("expired", _each(report, "expired")),
    ]
    some = [one for one in series if any(one.values)]
    if not some:
        return '<p class="good">nothing failed</p>'
    return lines(_times(report), some, _number)


def _topics(report: Report) -> str:
    head = (
        "topic", "group", "stored", "bytes", "keys", "delivered", "redelivered", "done", "failed",
        "dead", "skipped", "lag", "p50", "p99", "handling p99",
    )  # fmt: skip
    rows = []
    for (topic, group), one in sorted(
        report.rows.items(), key=lambda row: (row[0][0], row[0][1] or "")
    ):
        counts = one.counts
        if group is None:
            keys = report.keys.get(topic)
            told = ["", _number(counts["stored"]), _bytes(counts["stored_bytes"]),
                    "" if keys is None else f"≈ {_number(keys)}", *[""] * 10]  # fmt: skip
        else:
            told = [group, "", "", "", *_of_group(one)]
        rows.append((topic, *told))
    return _table(head, rows, texts=2)


def _of_group(one: Point) -> list[str]:
    counts = one.counts
    names = ("delivered", "redelivered", "done", "retried", "dead", "skipped")
    return [
        *[_number(counts[name]) if counts[name] else "" for name in names],
        "" if one.lag is None else _number(one.lag),
        _duration(one.latency["p50"]) if one.latency else "",
        _duration(one.latency["p99"]) if one.latency else "",
        _duration(one.handling["p99"]) if one.handling else "",
    ]


def _causes(report: Report) -> str:
    if not report.dead:
        return '<p class="good">no message died</p>'
    rows = report.dead[:_SHOWN_CAUSES]
    plotted = bars(
        [
            Bar(
                f"{row['exception']}: {row['message']}" if row["exception"] else row["message"],
                row["count"],
                f"{row['topic']} · {row['group']}, {_trend(row['count'], row['day_before'])}",
            )
            for row in rows
        ],
        _number,
    )
    table = _table(
        ("fingerprint", "topic", "group", "for example", "first", "last", "count", "day before"),
        [
            (row["fingerprint"], row["topic"], row["group"], ", ".join(row["sample_ids"][:2]),
             f"{row['first']:%H:%M:%S}", f"{row['last']:%H:%M:%S}", _number(row["count"]),
             _number(row["day_before"]))
            for row in rows
        ],
        texts=4,
    )  # fmt: skip
    left = len(report.dead) - len(rows)
    more = f'<p class="about">and {counted(left, "cause")} more</p>' if left else ""
    return plotted + table + more


def _trend(count: int, before: int) -> str:
    if not before:
        return "new"
    change = count / before - 1
    return "as on the day before" if abs(change) < 0.005 else f"{change:+.0%} on the day before"


def _verdict(report: Report) -> tuple[str, str]:
    if report.audit is None:
        return "–", "has not run"
    counts = Counter(str(row["verdict"]) for row in report.audit)
    bad = sum(counts[one] for one in _BAD)
    if bad:
        return "not ok", f"{bad} of {counted(len(report.audit), 'row')}"
    if not report.audit:
        return "–", "no rows of this day"
    good = sum(counts[one] for one in _GOOD)
    return ("ok" if good == len(report.audit) else "not all"), f"{good} of {len(report.audit)} ok"


def _audit(report: Report) -> str:
    if report.audit is None:
        return '<p class="none">the audit has not run: ternmq pipeline run --jobs audit</p>'
    if not report.audit:
        return '<p class="none">the audit has nothing of this day yet</p>'
    counts = Counter(str(row["verdict"]) for row in report.audit)
    chips = "".join(
        f'<li class="{_mood(verdict)}">{escape(verdict)} <b>{_number(count)}</b></li>'
        for verdict, count in sorted(counts.items())
    )
    others = [row for row in report.audit if row["verdict"] not in _QUIET]
    head = (
        "ten minutes",
        "tier",
        "topic",
        "group",
        "verdict",
        "sent",
        "stored",
        "lost",
        "doubled",
        "late",
    )
    rows = [
        (
            f"{row['bucket']:%H:%M}", row["tier"] or "", row["topic"] or "", row["group"] or "",
            f"{row['verdict']}{'' if row['final'] else ' so far'}",
            *[_count(row, name) for name in ("sent", "stored", "lost", "doubled", "late")],
        )
        for row in others[:_SHOWN_BUCKETS]
    ]  # fmt: skip
    left = len(others) - len(rows)
    more = f'<p class="about">and {counted(left, "row")} more</p>' if left else ""
    return f'<ul class="chips">{chips}</ul>' + (_table(head, rows, texts=5) + more if rows else "")


def _mood(verdict: str) -> str:
    return "good" if verdict in _GOOD else "bad" if verdict in _BAD else "plain"


def _count(row: Mapping[str, Any], name: str) -> str:
    return "" if row[name] is None else _number(row[name])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int) -> str:
    """Return a table; the first ``texts`` columns are texts, the others numbers."""
    titles = "".join(
        f"<th{'' if at < texts else ' class=n'}>{escape(name)}</th>" for at, name in enumerate(head)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{'' if at < texts else ' class=n'}>{escape(cell)}</td>"
            for at, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    table = f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", "\u202f")


def _rate(value: float) -> str:
    return _number(value) if value >= 10 or value == 0 else f"{value:.2g}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "0%"


def _bytes(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"


def _duration(micros: float) -> str:
    for unit, size in (("d", 86_400e6), ("h", 3600e6), ("min", 60e6), ("s", 1e6), ("ms", 1e3)):
        if micros >= size:
            return f"{micros / size:.3g} {unit}"
    return f"{micros:.0f} µs"
