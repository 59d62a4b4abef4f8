"""The fixtures of the testing kit, with settings of a test module."""

from __future__ import annotations

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import broker


@pytest.fixture
def ternmq_settings() -> dict[str, object]:
    return {"create_topics": False}


def test_the_broker_has_the_settings_of_the_module(ternmq_url: str) -> None:
    with (
        ternmq.sync.connect(ternmq_url) as client,
        pytest.raises(ternmq.UnknownTopic, match="ternmq apply MODULE:CLIENT"),
    ):
        client.send("orders", b"x")


def test_a_folder_is_no_setting_of_a_broker_in_memory() -> None:
    with (
        pytest.raises(ternmq.InvalidRequest, match=r"'data'.*disk=RealDisk\(folder\)"),
        broker(settings={"data": "x"}),
    ):
        pass
