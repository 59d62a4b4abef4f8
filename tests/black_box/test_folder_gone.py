"""A broker whose folder is taken away ends, and says why: it could keep nothing any more."""

from __future__ import annotations

import shutil
from pathlib import Path

import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until


def test_a_broker_without_its_folder_ends(tmp_path: Path) -> None:
    broker = BrokerProcess("dev", tmp_path, segment="4MiB")
    with broker:
        with ternmq.sync.connect(broker.url, timeout=1.0) as client:
            client.send("orders", b"kept")

            def removed() -> bool:  # the broker may just be making a file in it
                shutil.rmtree(broker.data, ignore_errors=True)
                return not broker.data.exists()

            wait_until(removed, "the folder is removed")
            process = broker.process
            assert process is not None
            wait_until(lambda: process.poll() is not None, "the broker has ended")
        assert process.returncode not in (0, None)
        assert "reading the free space" in broker.log
        assert "Traceback" not in broker.log
