"""What everyday tests leave out: each release line of Spark, more kills, a checkpoint carried over.

    python -m tests.spark.matrix                      4.2 and 4.3
    python -m tests.spark.matrix --lines 4.2 --quick  one line, and of the tests only the streams

A virtual environment is made for each line, in ``.venv-spark-LINE``. The tests of Spark run in it;
then queries that the line before began go on with this one (W15), and every row is counted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import ternmq.sync
from ternmq.testing import InProcessBroker, broker

ROOT: Final = Path(__file__).parents[2]
LINES: Final = ("4.2", "4.3")
TESTS: Final = ("tests/spark", "tests/unit/spark", "tests/integration/test_spark_reading.py")
QUICK: Final = tuple(
    f"tests/spark/test_{name}.py" for name in ("stream", "recreated", "exactly_once")
)
ROWS: Final = 500
KILLS: Final = "3"
WAIT_S: Final = 900

Row = tuple[str, int, int, bytes]


def python_of(line: str) -> Path:
    """Return the Python of a line's environment, which is made if it is not there."""
    folder = ROOT / f".venv-spark-{line}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-e", ".[dev,spark]"], cwd=ROOT, check=True)
    # On its own: the extra is held to the line that Delta supports.
    subprocess.run([*pip, f"pyspark=={line}.*"], cwd=ROOT, check=True)
    return python


def tested(python: Path, tests: Sequence[str]) -> bool:
    """Run the tests with a Python; return whether they passed."""
    environ = {**os.environ, "TERNMQ_SPARK_KILLS": KILLS}
    command = [str(python), "-m", "pytest", "-q", *tests]
    return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode == 0


def carried_over(before: Path, after: Path) -> list[str]:
    """Begin a query with one Python, go on with another; return what is wrong then."""
    with (
        TemporaryDirectory() as folder,
        broker(manual=False) as one,
        ternmq.sync.connect(one.url) as client,
    ):
        for name in ("orders", "out"):
            client.admin.create_topic(name, queues=3)
        for number, python in enumerate((before, after)):
            first = number * ROWS
            client.send_many(
                "orders",
                [ternmq.sync.Message(b"%d" % n, key=f"k{n}") for n in range(first, first + ROWS)],
            )
            _copy(python, one, Path(folder))
        sent = Counter(one.body for one in client.read("orders"))
        written = Counter(one.body for one in client.read("out"))
        found = Counter(_files(after, Path(folder) / "files"))
    wrong = []
    if written != sent:
        wrong.append(f"the topic: {sum((sent - written).values())} rows are missing, "
                     f"{sum((written - sent).values())} are there too often")  # fmt: skip
    if found != sent:
        wrong.append(f"the files: {sum((sent - found).values())} rows are missing, "
                     f"{sum((found - sent).values())} are there too often")  # fmt: skip
    return wrong


def _copy(python: Path, one: InProcessBroker, folder: Path) -> None:
    command = [
        str(python), "-m", "tests.spark.copier", "--port", str(one.port), "--checkpoint",
        str(folder / "checkpoint"), "--path", str(folder / "files"), "--topic", "out",
    ]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=True, timeout=WAIT_S)


def _files(python: Path, folder: Path) -> list[bytes]:
    """Return the bodies in a folder that Spark wrote, as Spark sees them."""
    program = (
        "import sys, ternmq.spark\n"
        "spark = ternmq.spark.session('look', master='local[1]',"
        " settings={'spark.driver.host': '127.0.0.1'})\n"
        "rows = spark.read.parquet(sys.argv[1]).select('value').collect()\n"
        "print('found', *[bytes(row['value']).decode() for row in rows])\n"
    )
    done = subprocess.run(
        [str(python), "-c", program, str(folder)], cwd=ROOT, check=True, timeout=WAIT_S,
        capture_output=True, text=True,
    )  # fmt: skip
    told = next(one for one in done.stdout.splitlines() if one.startswith("found"))
    return [one.encode() for one in told.split()[1:]]


def main() -> int:
    """Do it all; return the exit status."""
    arguments = argparse.ArgumentParser(description="Test with each release line of Spark.")
    arguments.add_argument("--lines", nargs="+", default=list(LINES))
    arguments.add_argument("--quick", action="store_true", help="of the tests only the streams")
    arguments.add_argument("--no-tests", action="store_true", help="only what is carried over")
    given = arguments.parse_args()
    pythons = {line: python_of(line) for line in given.lines}
    failed: list[str] = []
    if not given.no_tests:
        for line, python in pythons.items():
            if not tested(python, QUICK if given.quick else TESTS):
                failed.append(f"Spark {line}: tests")
    for before, after in zip(given.lines, given.lines[1:], strict=False):
        wrong = carried_over(pythons[before], pythons[after])
        failed += [f"a checkpoint of Spark {before} with {after}: {one}" for one in wrong]
    for one in failed:
        print(f"FAILED {one}")
    print("failed" if failed else "passed", *given.lines)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
