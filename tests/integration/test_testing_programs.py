"""The testing kit imports programs whose clients are made when they are imported."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker

PROGRAM = {
    "__init__.py": "",
    "clients.py": "import ternmq.sync\nclient = ternmq.sync.connect()\n",
    "web.py": (
        "from imported_shop.clients import client\n"
        "def order(number):\n    return client.send('orders', number)\n"
    ),
    "worker.py": (
        "from imported_shop.clients import client\n"
        "done = []\n"
        "@client.handler('orders', group='billing')\n"
        "def bill(number: int) -> None:\n"
        "    done.append(number)\n"
        "    client.send('billed', number)\n"
    ),
}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a program; it can be imported."""
    folder = tmp_path / "imported_shop"
    folder.mkdir()
    for name, text in PROGRAM.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TERNMQ_APP", "somebody")
    return "imported_shop"


@pytest.mark.parametrize("number", [1, 2])  # each test has it new, though a run closes its client
def test_a_program_uses_the_broker_of_the_test(
    program: str,
    ternmq_broker: InProcessBroker,
    ternmq_import: Callable[[str], ModuleType],
    number: int,
) -> None:
    web, worker = ternmq_import(f"{program}.web"), ternmq_import(f"{program}.worker")
    assert os.environ["TERNMQ_URL"] == ternmq_broker.url
    assert web.client is worker.client
    thread = threading.Thread(target=worker.client.run)
    thread.start()
    assert web.order(number).offset == 0
    ternmq_broker.wait_idle("orders", "billing")
    assert worker.done == [number]
    with ternmq.sync.connect() as other:
        assert [one.value for one in other.read("billed")] == [number]
    worker.client.stop()
    thread.join()


def test_what_was_imported_before_is_there_again(program: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import imported_shop.web as before, sys
        kept = []

        def test_one(ternmq_import):
            web = ternmq_import("imported_shop.web")
            assert web is not before
            web.order(1)
            kept.append(web.client)

        def test_two():
            assert sys.modules["imported_shop.web"] is before
            assert kept[0]._closed
        """
    )
    del program
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_ternmq_itself_is_not_imported_anew(ternmq_import: Callable[[str], ModuleType]) -> None:
    with pytest.raises(ValueError, match="of the program that is tested"):
        ternmq_import("ternmq.sync")
    assert sys.modules["ternmq"] is ternmq


def test_a_worker_that_the_test_made_ends_with_a_test_that_fails(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        test_it="""
        import threading
        import ternmq.sync

        def test_it(ternmq_broker):
            worker = ternmq.sync.connect(ternmq_broker.url)

            @worker.handler("orders", group="billing")
            def bill(number: int) -> None: ...

            threading.Thread(target=worker.run).start()
            with ternmq.sync.connect(ternmq_broker.url) as other:
                other.send("orders", 1)
            ternmq_broker.wait_idle("orders", "billing")
            assert [] == [2]
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=60)
    result.assert_outcomes(failed=1)


@pytest.mark.parametrize("run", ["worker.client.run()", "asyncio.run(worker.client.run())"])
def test_a_worker_ends_with_a_test_that_fails(
    program: str,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    run: str,
) -> None:
    """Else its thread would keep pytest from ending."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    if "asyncio" in run:
        clients = "import ternmq\nclient = ternmq.connect()\n"
        (tmp_path / program / "clients.py").write_text(clients)
        worker = PROGRAM["worker.py"].replace("def bill", "async def bill")
        worker = worker.replace("client.send", "await client.send")
        (tmp_path / program / "worker.py").write_text(worker)
    pytester.makepyfile(
        test_it=f"""
        import asyncio
        import threading
        import ternmq.sync

        def test_it(ternmq_import, ternmq_broker):
            worker = ternmq_import("imported_shop.worker")
            threading.Thread(target=lambda: {run}).start()
            with ternmq.sync.connect() as other:
                other.send("orders", 1)
            ternmq_broker.wait_idle("orders", "billing")
            assert worker.done == [2]
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=60)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert [[]1] == [[]2]*"])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import no_such_package", "No module named 'no_such_package'"),
        ("from imported_shop.clients import nothing", "cannot import name 'nothing'"),
    ],
)
def test_what_a_module_cannot_import_is_named(
    program: str,
    ternmq_import: Callable[[str], ModuleType],
    tmp_path: Path,
    text: str,
    error: str,
) -> None:
    (tmp_path / program / "broken.py").write_text(text)
    with pytest.raises(ImportError, match=error):
        ternmq_import(f"{program}.broken")


def test_a_name_that_is_not_that_of_a_module(
    program: str, ternmq_import: Callable[[str], ModuleType]
) -> None:
    with pytest.raises(ModuleNotFoundError, match=rf"{program}\.nothing"):
        ternmq_import(f"{program}.nothing")
    for wrong in (f"{program}/worker.py", f"{program}.worker:client", ""):
        with pytest.raises(ValueError, match="is not the name of a module"):
            ternmq_import(wrong)
    with pytest.raises(TypeError, match=r"web\.order is a function; name a module"):
        ternmq_import(f"{program}.web.order")
