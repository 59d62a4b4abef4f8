"""Outcome of each message of a load: its receipt, its log line."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ternmq.client.content.delays import at
from ternmq.client.content.message import Receipt, message_id
from ternmq.client.producer.load import Load
from ternmq.client.producer.outgoing import Outgoing
from ternmq.model.errors import IdConflict, TernMQError
from ternmq.model.printing import printable
from ternmq.wire import bodies

log: Final = logging.getLogger("ternmq")


def row_receipts(
    load: Load, receipt: bodies.Receipt, producer_id: int
) -> list[Receipt | TernMQError]:
    """Return the outcome of each row of a batch, some of which were stored before or refused."""
    topic = load.lane.topic
    others = {other.row: other for other in receipt.others}
    contents = load.contents()
    ids = ["" if isinstance(one, bytes) else one.application_id for one in contents]
    offset = receipt.first_offset
    told: list[Receipt | TernMQError] = []
    for row in range(load.count):
        other = others.get(row)
        sequence = load.first_sequence + row
        durable = not receipt.written
        if other is None:
            due_at = None
            if receipt.scheduled:
                one = contents[row]
                assert isinstance(one, Outgoing)
                due_at = at(one.due_us)
            told.append(
                Receipt(topic, receipt.queue, offset, durable, receipt.duplicate, producer_id,
                        sequence, ids[row], due_at=due_at)
            )  # fmt: skip
            offset = None if offset is None else offset + 1
        elif other.conflict:
            conflict = IdConflict(
                f"id {ids[row]!r} was used in {topic!r} for a message that was cancelled"
                if other.cancelled
                else f"id {ids[row]!r} was used in {topic!r} for another message"
            )
            if log.isEnabledFor(logging.DEBUG):
                _log_unsent(load, row, contents[row], producer_id, conflict)
            told.append(conflict)
        else:
            queue = receipt.queue if other.queue is None else other.queue
            # The broker finds the first one by its id, and does not know its producer and sequence.
            told.append(Receipt(topic, queue, other.offset, durable, True, 0, 0, ids[row]))
    return told


def log_unsent(load: Load, producer_id: int, errors: Mapping[int, TernMQError]) -> None:
    """Log messages of a load as not sent, without their bodies; ``errors``: by ``id(message)``."""
    for row, one in enumerate(load.contents()):
        error = errors.get(id(one))
        if error is not None:
            _log_unsent(load, row, one, producer_id, error)


def _log_unsent(load: Load, row: int, one: object, producer_id: int, error: TernMQError) -> None:
    log.warning(
        "not sent: %s: %s: %s", _description(load, row, one, producer_id),
        type(error).__name__, error,
    )  # fmt: skip


def log_sent(load: Load, producer_id: int) -> None:
    """Log each message of a load as stored, without its body."""
    for row, one in enumerate(load.contents()):
        log.debug("sent: %s", _description(load, row, one, producer_id))


def _description(load: Load, row: int, one: object, producer_id: int) -> str:
    # There is no id before the batch is made.
    id_ = message_id(producer_id, load.first_sequence + row) if load.frame else "none yet"
    key, application_id = (one.key, one.application_id) if isinstance(one, Outgoing) else ("", "")
    told = f"topic={load.lane.topic} key={key} id={id_} application_id={application_id}"
    return printable(told)
