"""Spark Connect: the client is a thin process; the Python of the server finds the formats."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="needs pyspark and a Java: pip install ternmq[spark]")
pytest.importorskip("grpc", reason="needs Spark Connect: pip install 'pyspark[connect]'")

import ternmq.sync
from ternmq.pipeline.running.jobs import chosen
from ternmq.pipeline.tables.folder import Folder
from tests.integration import living
from tests.spark.sessions import JAVA_OPTIONS

COUNT = 100


@pytest.mark.row("R1", "R2", "R3")
def test_all_formats_from_a_client_of_spark_connect(real, client, tmp_path):
    client.admin.create_topic("orders", queues=2)
    client.admin.create_topic("copy")
    some = [ternmq.sync.Message(b"%d" % n, key=f"k{n % 3}") for n in range(COUNT)]
    client.send_many("orders", some)
    (job,) = chosen(["archive"])
    living.run(real, Folder(str(tmp_path / "tables")), job)
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.spark.connect_client",
            real.url, str(tmp_path / "tables"), str(tmp_path),
        ],
        env={
            **os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
            "JDK_JAVA_OPTIONS": JAVA_OPTIONS,  # the client has no setting for its server's Java
            "PYTHONPATH": os.pathsep.join(one for one in sys.path if one),
        },
        stdout=subprocess.PIPE, timeout=600, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "session": "pyspark.sql.connect.session",
        "read": COUNT,
        "streamed": COUNT,
        "stored": COUNT,
        "archived": COUNT,
        "keys": ["k0", "k1", "k2"],
    }
    assert sorted(one.body for one in client.read("copy")) == sorted(
        b"%d" % n for n in range(COUNT)
    )
