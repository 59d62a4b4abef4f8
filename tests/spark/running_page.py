"""Runs the blocks of a page of the guide; ``running_page.py PAGE PORT JARS`` does so with Delta.

In a session with Delta's jars, the indented ``def load`` of the page replaces the one in a block,
and each ``sql`` block is run, too.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from tests.pages.blocks import agrees, steps
from tests.spark.sessions import delta_session

_LOAD = re.compile(r"^def load\(name\):\n    return (.*)\n", re.MULTILINE)
_INDENTED = re.compile(r"^    def load\(name\):\n        return (.*)\n", re.MULTILINE)
_SQL = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_page(page: Path, port: int, module: ModuleType, load: str = "") -> None:
    """Run the blocks of a page, and compare what they print with what the page shows.

    Args:
        page: The page.
        port: Port of the broker.
        module: Where the blocks are run; its name is in ``sys.modules``.
        load: Expression that replaces the one that ``load`` returns in the page.
    """
    replaced = 0
    for step in steps(page):
        if step.kind == "console":
            program, *arguments = shlex.split(step.code)
            assert program == "ternmq"
            ended = subprocess.run(
                [sys.executable, "-m", "ternmq", *arguments],
                capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip
            assert ended.returncode == 0, ended.stderr
            assert agrees(step.output, ended.stdout + ended.stderr), f"line {step.line}"
            continue
        code = re.sub(r"localhost:7117", f"127.0.0.1:{port}", step.code)
        if load:
            code, count = _LOAD.subn(lambda _: f"def load(name):\n    return {load}\n", code)
            replaced += count
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            exec(compile("\n" * step.line + code, str(page), "exec"), vars(module))
        assert agrees(step.output, told.getvalue()), f"line {step.line}: {told.getvalue()}"
    assert replaced == bool(load)


def main(page: str, port: str, jars: str) -> None:
    """Run a page with Delta's jars; print what its ``sql`` blocks return, a row a line."""
    with delta_session(jars) as spark:
        text = Path(page).read_text(encoding="utf-8")
        (load,) = _INDENTED.findall(text)
        module = sys.modules["page"] = ModuleType("page")
        run_page(Path(page), int(port), module, load)
        for query in _SQL.findall(text):
            asked = query.replace("/data/tables", str(Path("tables").absolute()))
            for row in spark.sql(asked).collect():
                print(*row)


if __name__ == "__main__":
    main(*sys.argv[1:])
