"""Delta's own jars, from Maven Central."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_GET = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:"


def delta_jars(folder: Path) -> str:
    """Return the paths of Delta's jars for this Spark, without Spark's own; skip if there are none.

    Args:
        folder: Where they are stored.
    """
    pytest.importorskip("pyspark", reason="needs pyspark and a Java: pip install ternmq[spark]")
    import pyspark

    from ternmq.spark.builder import DELTA

    line = pyspark.__version__.rpartition(".")[0]
    if line not in DELTA:
        pytest.skip(f"needs a Delta for Spark {line}")
    if shutil.which("mvn") is None:
        pytest.skip("needs mvn, to get Delta's jars")
    group, artifact, version = DELTA[line].split(":")
    pom = folder / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies>"
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency></dependencies></project>"
    )
    got = subprocess.run(
        ["mvn", "-B", "-q", "-f", str(pom), f"{_GET}copy-dependencies",
         f"-DoutputDirectory={folder / 'jars'}", "-DexcludeGroupIds=org.apache.spark"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    if got.returncode:
        pytest.skip(f"needs Delta's jars, which mvn could not get: {got.stdout[-300:]}")
    found = [
        str(one)
        for one in sorted((folder / "jars").iterdir())
        if one.name.startswith(("delta-", "unitycatalog-"))
    ]
    assert any(one.startswith("delta-spark") for one in map(os.path.basename, found))
    return ",".join(found)
