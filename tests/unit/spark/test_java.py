from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ternmq.model.errors import JavaMissing
from ternmq.spark import java


def make(folder, release, script='#!/bin/sh\nfor one do echo "$one"; done\n'):
    (folder / "bin").mkdir(parents=True)
    binary = folder / "bin" / "java"
    binary.write_text(script)
    binary.chmod(0o755)
    if release is not None:
        (folder / "release").write_text(release)
    return folder


WHOLE = 'JAVA_VERSION="17.0.15"\nMODULES="java.base jdk.incubator.vector"\n'
BARE = 'JAVA_VERSION="25.0.2"\nMODULES="java.base java.sql"\n'
OLD = 'JAVA_VERSION="1.8.0_400"\n'


@pytest.fixture
def nowhere(monkeypatch):
    """Have neither a system's Java nor a wheel's."""
    monkeypatch.setattr(java, "_carried", lambda: None)
    monkeypatch.setattr(Path, "is_dir", lambda self: False)


def test_java_home_is_taken(tmp_path, nowhere):
    home = make(tmp_path / "jdk", WHOLE)
    assert java.find({"JAVA_HOME": str(home)}) == java.Java(home, 17, whole=True)


def test_a_java_that_says_nothing_is_taken(tmp_path, nowhere):
    home = make(tmp_path / "jdk", None)
    assert java.find({"JAVA_HOME": str(home)}).version == 0


def test_java_on_the_path_is_taken_wherever_it_leads(tmp_path, nowhere):
    home = make(tmp_path / "jdk", WHOLE)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java.find({"PATH": str(tmp_path / "bin")}).home == home


def test_an_old_java_is_passed_over(tmp_path, nowhere):
    old, new = make(tmp_path / "old", OLD), make(tmp_path / "new", WHOLE)
    found = java.find({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert found.home == new
    with pytest.raises(JavaMissing, match="old is version 8"):
        java.find({"JAVA_HOME": str(old), "PATH": ""})


def test_the_java_of_the_wheel_is_the_last_choice(tmp_path, monkeypatch, nowhere):
    carried = make(tmp_path / "wheel", BARE)
    monkeypatch.setattr(java, "_carried", lambda: carried)
    found = java.find({"PATH": ""}, tmp_path / "cache")
    assert found.home.parent == tmp_path / "cache"
    # What it wraps gets everything but the wish for the module.
    told = subprocess.run(
        [
            found.home / "bin" / "java",
            "-cp", "a b", "--add-modules=jdk.incubator.vector", "-x", "'",
        ],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert told.splitlines() == ["-cp", "a b", "-x", "'"]
    again = java.find({"PATH": ""}, tmp_path / "cache")
    assert again == found


def test_no_java_at_all(nowhere):
    with pytest.raises(JavaMissing, match="there is no Java 17 or newer"):
        java.find({"PATH": ""})


def test_a_folder_that_cannot_be_made_is_named(tmp_path, monkeypatch, nowhere):
    carried = make(tmp_path / "wheel", BARE)
    (tmp_path / "file").touch()
    monkeypatch.setattr(java, "_carried", lambda: carried)
    with pytest.raises(JavaMissing, match="no folder for Java can be made in"):
        java.find({"PATH": ""}, tmp_path / "file")
