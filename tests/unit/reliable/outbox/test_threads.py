"""The threads of an outbox: what they log of the database."""

from __future__ import annotations

import logging

import pytest
import sqlalchemy as sa

from ternmq.reliable.database.trouble import Trouble
from ternmq.reliable.libraries.alchemy import AlchemyDatabase


def test_a_log_of_trouble_contains_no_values(
    database: AlchemyDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(sa.exc.SQLAlchemyError) as at, database.reading() as work:
        work.run(
            "INSERT INTO ternmq_lease (name, epoch) VALUES (:body, NULL)", {"body": "a secret"}
        )
    assert "a secret" in str(at.value)
    with caplog.at_level(logging.ERROR, "ternmq.reliable"):
        Trouble(database, "the outbox").at(at.value)
    assert "NOT NULL constraint failed: ternmq_lease.epoch" in caplog.text
    assert "a secret" not in caplog.text
    assert len(caplog.text.splitlines()) == 1
