"""``bench/walks.py`` follows each way through the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WALKS = Path(__file__).parents[2] / "bench" / "walks.py"


def walked(*arguments: str) -> list[str]:
    """Return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, WALKS, *arguments], capture_output=True, text=True, check=True, timeout=100
    )
    return done.stdout.splitlines()


def test_the_table_has_a_row_for_each_way() -> None:
    _, _, *rows = walked()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[0] for row in cells] == ["send", "pull", "settle", "retry", "recovery"]
    assert all(int(row[1]) > int(row[2]) > 20 for row in cells)


def test_a_send_is_recorded_between_its_decision_and_its_answer() -> None:
    calls = [line.rpartition("  ")[2].removeprefix("turn ").strip() for line in walked("send")]
    order = ["broker/intake/sends.py: send", "journal/log/journal.py: append"]
    order += ["journal/log/journal.py: flush", "broker/gate/replies.py: release"]
    assert [call for call in dict.fromkeys(calls) if call in order] == order
