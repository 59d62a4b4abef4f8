"""The archive, whose process is killed at any time."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import ternmq.sync
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.tables.cleaning import DAY_US, clean
from ternmq.pipeline.tables.folder import Folder
from tests.spark.archiver import now_us
from tests.spark.killing import START_S, archiver, kept, kill_now_and_then, sent


@pytest.mark.row("R6")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled(real, tmp_path):
    tables = tmp_path / "tables"
    body = b"x" * 100_000
    with ternmq.sync.connect(real.url) as client:
        client.admin.create_topic("orders", queues=3)
        for at in range(8):
            client.send_many(
                "orders",
                [ternmq.sync.Message(b"%d " % n + body) for n in range(at * 50, at * 50 + 50)],
            )
            kill_now_and_then(real, tables, times=1, seed=at)
        assert archiver(real, tables).wait(START_S) == 0
        assert kept(tables) == sent(client)
        (group,) = client.admin.groups("orders")
        assert sum(one.cursor for one in group.queues) == 400
    # What the killed ones left is found, and nothing else.
    table = Archive(Folder(str(tables))).table
    clean(table, now_us() + 2 * DAY_US)
    there = {one.path for one in table.folder.list() if not one.path.startswith("_delta_log")}
    assert there == {one.path for one in table.files()}
