"""Compares, in each test of the broker, every fact that is applied with what its record says."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from ternmq.broker.group.progress import Progress
from ternmq.broker.ledger import factkinds
from ternmq.broker.ledger.factkinds import F, FactKind
from ternmq.broker.ledger.ledger import Ledger
from ternmq.model.types import Position
from ternmq.record.fact.facts import Pulled, Settled
from ternmq.record.fact.messages import Messages


def check(what: FactKind[F], body: bytes, fact: F) -> None:
    """A start that reads the body finds the fact; whether a sequence is a tuple is not compared."""
    assert msgspec.msgpack.encode(what.unpack(body)) == msgspec.msgpack.encode(fact)


@pytest.fixture(autouse=True, scope="module")
def facts_are_what_their_records_say() -> Iterator[None]:
    record, messages = Ledger.record, Ledger.admit_messages
    pulled, settled = Ledger.record_pulled, Ledger.record_settled

    def checked(self: Ledger, now_us: int, what: FactKind[F], fact: F) -> Position:
        check(what, what.pack(fact), fact)
        return record(self, now_us, what, fact)

    def checked_messages(self: Ledger, now_us: int, body: bytes, stored: Messages) -> Position:
        check(factkinds.MESSAGES, body, stored)
        return messages(self, now_us, body, stored)

    def checked_pulled(
        self: Ledger, now_us: int, body: bytes, progress: Progress, fact: Pulled
    ) -> Position:
        check(factkinds.PULLED, body, [fact])
        assert self.views.progress[fact.group, fact.topic, fact.queue] is progress
        return pulled(self, now_us, body, progress, fact)

    def checked_settled(
        self: Ledger, now_us: int, body: bytes, progress: Progress, fact: Settled
    ) -> Position:
        check(factkinds.SETTLED, body, [fact])
        assert self.views.progress[fact.group, fact.topic, fact.queue] is progress
        return settled(self, now_us, body, progress, fact)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Ledger, "record", checked)
        patched.setattr(Ledger, "admit_messages", checked_messages)
        patched.setattr(Ledger, "record_pulled", checked_pulled)
        patched.setattr(Ledger, "record_settled", checked_settled)
        yield
