"""What was acknowledged, in whatever order, stays so over a kill; acks touch no index file."""

from __future__ import annotations

import pytest

from tests.fault import history
from tests.fault.processes import Verdicts, Worker, run, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.slow]


@pytest.mark.row("C8", "C10", "E11")
def test_acks_out_of_order_survive_a_kill(tmp_path, verdicts: Verdicts):
    """Eight messages taken, 3, 5 and 7 acknowledged, SIGKILL: exactly the others come again."""
    data, record = tmp_path / "data", tmp_path / "history"
    worker = run(data, record, messages=400, segment=64 << 10, state=24 << 10)  # index files
    assert worker.code == 0, worker.log
    start = len(history.read(record))
    # No STATE is due: it would cut a new part of the index, whatever was recorded before it.
    with Worker(data, record, scenario="acks", segment=64 << 10, state=64 << 20) as worker:

        def notes() -> list[dict[str, int]]:
            assert not worker.ended, worker.log
            return [line["files"] for line in history.read(record) if line["op"] == "index"]

        wait_until(lambda: len(notes()) == 2, "three acks answered")
        before, after = notes()
        worker.kill()
    assert before
    assert before == after
    lines = history.read(record)[start:]
    first = next(
        line["first"] for line in lines if line["op"] == "sent" and line["a"][0] == "orders"
        and line["a"][3] == 8
    )  # fmt: skip
    acked = [offset - first for line in lines if line["op"] == "settle" for offset in line["rows"]]
    assert acked[-3:] == [3, 5, 7]
    verdict = verdicts.sound(data, record)
    again = [offset - first for group, _, _, offset in verdict["came"] if group == "solo"]
    assert again == [0, 1, 2, 4, 6]
