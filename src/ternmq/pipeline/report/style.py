"""The report's style: light and dark, on paper and on small screens."""

from __future__ import annotations

from typing import Final

_LIGHT: Final = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#57606a")
_DARK: Final = ("#58a6ff", "#f0883e", "#3fb950", "#d2a8ff", "#ff7bac", "#8d96a0")


def _colours(colours: tuple[str, ...]) -> str:
    return "".join(f"--c{number}:{colour};" for number, colour in enumerate(colours))


_LINES: Final = "".join(
    f".l{n}{{stroke:var(--c{n})}}.a{n},.p{n}{{fill:var(--c{n})}}.k{n}{{background:var(--c{n})}}"
    for n in range(len(_LIGHT))
)

STYLE: Final = (
    f":root{{color-scheme:light dark;--page:#f6f8fa;--card:#fff;--edge:#d0d7de;--text:#1f2328;"
    f"--soft:#57606a;--grid:#eaeef2;--good:#1a7f37;--bad:#cf222e;{_colours(_LIGHT)}}}"
    "@media(prefers-color-scheme:dark){:root{--page:#0d1117;--card:#161b22;--edge:#30363d;"
    "--text:#e6edf3;--soft:#8d96a0;--grid:#21262d;--good:#3fb950;--bad:#f85149;"
    f"{_colours(_DARK)}}}}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--page);color:var(--text);font:15px/1.45 system-ui,-apple-system,"
    "'Segoe UI',Helvetica,Arial,sans-serif}"
    "main{max-width:1180px;margin:0 auto;padding:28px 20px 48px}"
    "header{margin:0 0 20px}h1{margin:0;font-size:30px;letter-spacing:-.01em}"
    "header p,.about{margin:2px 0 0;color:var(--soft);font-size:13px}"
    "h2{margin:0;font-size:16px}"
    "section{background:var(--card);border:1px solid var(--edge);border-radius:10px;"
    "padding:16px 18px;margin:0 0 16px;min-width:0}"
    ".two{display:grid;grid-template-columns:repeat(auto-fit,minmax(440px,1fr));gap:0 16px}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(160px,1fr));gap:12px;"
    "margin:0 0 16px}"
    ".tile{background:var(--card);border:1px solid var(--edge);border-radius:10px;"
    "padding:12px 16px}"
    ".tile b{display:block;font-weight:500;font-size:13px;color:var(--soft)}"
    ".tile strong{display:block;font-size:25px;letter-spacing:-.01em;"
    "font-variant-numeric:tabular-nums}"
    ".tile span{font-size:12.5px;color:var(--soft)}"
    "svg{display:block;width:100%;height:auto;margin-top:8px;overflow:visible}"
    "svg text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;"
    "fill:var(--soft);font-variant-numeric:tabular-nums}"
    "svg .label{font-size:13px;fill:var(--text)}svg .soft{fill:var(--soft);font-size:12px}"
    ".grid{stroke:var(--grid)}.hit{fill:transparent}.hit:hover{fill:var(--text);fill-opacity:.06}"
    "[class^=l]:not(.label):not(.legend){fill:none;stroke-width:1.8;stroke-linejoin:round}"
    "[class^=a]:not(.about){fill-opacity:.14}.b1{fill:var(--c1)}"
    f"{_LINES}"
    ".legend,.chips{list-style:none;display:flex;flex-wrap:wrap;gap:4px 16px;margin:10px 0 0;"
    "padding:0;font-size:12.5px;color:var(--soft)}"
    ".legend i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px}"
    ".chips li{border:1px solid var(--edge);border-radius:99px;padding:1px 12px}"
    ".bars svg{min-width:720px}"
    ".wide{overflow-x:auto;margin-top:10px}"
    "table{border-collapse:collapse;width:100%;font-size:13px;white-space:nowrap}"
    "th{font-weight:500;color:var(--soft);text-align:left}"
    "th,td{padding:5px 12px 5px 0;border-bottom:1px solid var(--grid)}"
    ".n{text-align:right;font-variant-numeric:tabular-nums}"
    "tbody tr:last-child td{border-bottom:0}"
    ".none{color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad)}"
    "@media(max-width:520px){.two{grid-template-columns:1fr}}"
    "@media print{body{background:#fff}section,.tile{break-inside:avoid}}"
)
"""The style sheet of the page."""
