from __future__ import annotations

import pytest


@pytest.fixture
def tables(tmp_path):
    """Name a folder for tables, which is not there yet."""
    from ternmq.pipeline.tables.folder import Folder

    return Folder(str(tmp_path / "tables"))
