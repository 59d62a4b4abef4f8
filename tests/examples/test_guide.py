"""Every Python block and every command of the documents is run in order, and prints what they say.

The blocks of a page are one program and one shell session, in a folder of the page's own. A page
has a broker of its own, which is found without an address; a page that starts one itself
(``ternmq serve``, ``ternmq dev``) has ports of its own instead of 7117 and 7118. ``tests.pages``
has the rest: what is made of the code, and what names things that must be there.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import pytest

from ternmq.testing import broker
from tests.black_box.process import free_port
from tests.examples.conftest import ROOT
from tests.pages.blocks import Step, agrees, steps
from tests.pages.shell import Shell

# `make demo` takes too long for a page; tests/demo runs it. Tables want Spark: tests/spark.
_ELSEWHERE = {ROOT / "docs" / "guide" / name for name in ("analysis.md", "demo.md", "tables.md")}
GUIDE = sorted({*(ROOT / "docs" / "guide").rglob("*.md")} - _ELSEWHERE)
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if page in GUIDE or (page not in _ELSEWHERE and steps(page))
]
_STARTS_ONE = re.compile(r"\bternmq (serve|dev)\b")

_CURL = """\
#!{python}
# What the pages want of curl, for machines without it: curl -s[f] [--retry ...] URL
import sys, time, urllib.request
until = time.monotonic() + (30 if "--retry" in sys.argv else 0)
while True:
    try:
        sys.stdout.write(urllib.request.urlopen(sys.argv[-1], timeout=10).read().decode())
        break
    except OSError:
        if time.monotonic() > until:
            sys.exit(22)
        time.sleep(0.1)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return what a reader's shell has set: this Python and this ``ternmq`` are found first."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in {
        "python": [sys.executable],
        "ternmq": [sys.executable, "-m", "ternmq"],
        "gunicorn": [sys.executable, "-m", "gunicorn"],
    }.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    if shutil.which("curl") is None:
        (programs / "curl").write_text(_CURL.format(python=sys.executable), encoding="utf-8")
        (programs / "curl").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if "TERNMQ" not in name}
    path = f"{programs}:{kept.get('PATH', os.defpath)}"
    return kept | {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def ports() -> dict[str, str]:
    """Return which ports stand for those that the pages name."""
    return {shown: str(free_port()) for shown in ("7117", "7118", "7119", "7217", "7218", "8000")}


@pytest.mark.timeout(300)  # a page may start many programs, on a machine that does much else
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(
    page: Path,
    tmp_path: Path,
    environment: dict[str, str],
    ports: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = steps(page)
    assert found, "a page of the guide shows something"
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(folder)
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # where annotations are looked up
    commands = [one.code for one in found if one.kind == "console"]
    with ExitStack() as stack:
        if any(map(_STARTS_ONE.search, commands)):
            url = f"ternmq://127.0.0.1:{ports['7117']}"
            environment |= {
                "TERNMQ_LISTEN": f"127.0.0.1:{ports['7117']}",
                "TERNMQ_HTTP": f"127.0.0.1:{ports['7118']}",
                "TERNMQ_SEGMENT": "4MiB",  # the first one is quickly made
            }
        else:
            url = stack.enter_context(broker(manual=False)).url
        monkeypatch.setenv("TERNMQ_URL", url)
        environment["TERNMQ_URL"] = url
        shell = stack.enter_context(Shell(folder, environment)) if commands else None
        run_steps(found, page, module, shell, ports, capsys)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("back", [False, True])
def test_the_first_pages_work_one_after_the_other(
    back: bool,
    tmp_path: Path,
    environment: dict[str, str],
    ports: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A reader leaves the broker running and reads on: names of one page are not in the other."""
    pages = [ROOT / "README.md", ROOT / "docs" / "guide" / "first-steps.md"]
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    with broker(manual=False) as one:
        monkeypatch.setenv("TERNMQ_URL", one.url)
        with Shell(tmp_path, environment | {"TERNMQ_URL": one.url}) as shell:
            for page in reversed(pages) if back else pages:
                run_steps(steps(page), page, module, shell, ports, capsys)


def run_steps(
    found: list[Step],
    page: Path,
    module: ModuleType,
    shell: Shell | None,
    ports: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run what a page shows, and compare what it prints."""
    for step in found:
        if step.kind == "python":
            run_python(step, page, module)
            printed = capsys.readouterr().out
        else:
            assert shell is not None
            printed = run_command(step, shell, ports)
        assert agrees(step.output, printed), f"{page.name}, line {step.line}: {printed}"


def run_python(step: Step, page: Path, module: ModuleType) -> None:
    """Run a block. Empty lines before it: errors name the line of the page."""
    exec(compile("\n" * step.line + step.code, str(page), "exec"), vars(module))


def run_command(step: Step, shell: Shell, ports: dict[str, str]) -> str:
    """Run a command; return what it printed, with the ports that the page names."""
    code = step.code
    for shown, real in ports.items():
        code = code.replace(shown, real)
    printed, _ = shell.run(code)
    for shown, real in ports.items():
        printed = printed.replace(real, shown)
    return printed
