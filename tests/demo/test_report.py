"""What the demo prints at its end."""

from __future__ import annotations

import io

from rich.console import Console

from ternmq.demo.judge.verdict import GroupVerdict, Verdict
from ternmq.demo.plan import EVERYBODY, Run
from ternmq.demo.report import table_of


def test_the_table_fits_into_80_columns_for_a_whole_year():
    most = dict.fromkeys(("owed", "delivered", "acked", "redelivered"), 664_839)
    groups = [
        GroupVerdict(one.name, **most, per_second=21_345, p50_ms=999.9, p99_ms=99_900.0)
        for one in EVERYBODY
    ]
    out = io.StringIO()
    Console(file=out, width=80).print(table_of(Verdict(Run(), groups=groups)))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    for label in ("  repeated after a kill", "unexplained duplicates", "send to handler p50"):
        (line,) = [one for one in lines if one.strip().startswith(label.strip())]
        assert line.split(label.strip())[1].split(), "it is on one line"
