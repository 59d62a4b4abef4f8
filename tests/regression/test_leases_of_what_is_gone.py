"""A pull that was refused when its rows had been leased kept them until the lease ended."""

from __future__ import annotations

import pytest

from ternmq.model.errors import MessageNotFound
from ternmq.server.commands import pulls
from ternmq.testing import InProcessBroker
from tests.integration.raw import RawClient, texts


def test_they_are_given_back_uncounted(
    timed: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> list[bytes]:
        raise MessageNotFound("retention was quicker")

    with RawClient(timed.port) as client:
        client.send("orders", "a")
        client.join("orders", "billing")
        with monkeypatch.context() as patch:
            patch.setattr(pulls, "records_of", gone)
            with pytest.raises(MessageNotFound):
                client.pull("orders", "billing")
        again = client.pull("orders", "billing")
        assert texts(again) == {0: "a"}
        assert [(run.attempt, run.deliveries) for run in again.runs] == [(1, 2)]
