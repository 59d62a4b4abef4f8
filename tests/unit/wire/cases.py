"""Every body that is laid out by hand, with its codec: what the tests of bodies go through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ternmq.wire import bodies
from tests.unit.wire import examples
from tests.unit.wire.examples import (
    pack_bytes,
    pack_delivery,
    pack_prepared,
    pack_records,
    pack_rows,
    pack_transaction_prepared,
    pack_transaction_rows,
)


class Case(NamedTuple):
    pack: Callable[[Any], bytes]
    unpack: Callable[[bytes], Any]
    value: Any
    open_ended: bool = False
    """The end of the body is the end of something that nobody here looks into."""


def spread(function: Callable[..., bytes]) -> Callable[[Any], bytes]:
    return lambda value: function(*value)


REQUESTS = {
    "send": Case(spread(bodies.pack_send), bodies.unpack_send, examples.SEND, open_ended=True),
    "send, any queue": Case(
        spread(bodies.pack_send), bodies.unpack_send, examples.SEND_ANY, open_ended=True
    ),
    "prepare": Case(bodies.pack_prepare, bodies.unpack_prepare, examples.PREPARE, open_ended=True),
    "prepare, any queue": Case(
        bodies.pack_prepare, bodies.unpack_prepare, examples.PREPARE_ANY, open_ended=True
    ),
    "transaction prepare": Case(
        bodies.pack_transaction_prepare,
        bodies.unpack_transaction_prepare,
        examples.TRANSACTION_PREPARE,
        open_ended=True,
    ),
    "transaction prepare, no batch": Case(
        bodies.pack_transaction_prepare,
        bodies.unpack_transaction_prepare,
        examples.TRANSACTION_OPEN,
    ),
    "transaction settle": Case(
        bodies.pack_transaction_settle,
        bodies.unpack_transaction_settle,
        examples.TRANSACTION_SETTLE,
    ),
    "transaction read": Case(
        bodies.pack_transaction_read, bodies.unpack_transaction_read, examples.TRANSACTION_READ
    ),
    "pull": Case(bodies.pack_pull, bodies.unpack_pull, examples.PULL),
    "settle": Case(bodies.pack_settle, bodies.unpack_settle, examples.SETTLE),
    "settle, all": Case(bodies.pack_settle, bodies.unpack_settle, examples.SETTLE_ALL),
    "extend": Case(bodies.pack_extend, bodies.unpack_extend, examples.EXTEND),
    "read": Case(bodies.pack_read, bodies.unpack_read, examples.READ),
    "journal read": Case(
        bodies.pack_journal_read, bodies.unpack_journal_read, examples.JOURNAL_READ
    ),
    "cancel": Case(bodies.pack_cancel, bodies.unpack_cancel, 7),
}
ANSWERS = {
    "receipt": Case(bodies.pack_receipt, bodies.unpack_receipt, examples.RECEIPT),
    "receipt, others": Case(bodies.pack_receipt, bodies.unpack_receipt, examples.RECEIPT_OTHERS),
    "receipt, queues": Case(bodies.pack_receipt, bodies.unpack_receipt, examples.RECEIPT_QUEUES),
    "receipt, cancelled": Case(
        bodies.pack_receipt, bodies.unpack_receipt, examples.RECEIPT_CANCELLED
    ),
    "receipt, scheduled": Case(
        bodies.pack_receipt, bodies.unpack_receipt, examples.RECEIPT_SCHEDULED
    ),
    "prepared": Case(pack_prepared, bodies.unpack_prepared, examples.PREPARED),
    "transaction prepared": Case(
        pack_transaction_prepared,
        bodies.unpack_transaction_prepared,
        examples.TRANSACTION_PREPARED,
    ),
    "transaction rows": Case(
        pack_transaction_rows,
        bodies.unpack_transaction_rows,
        examples.TRANSACTION_ROWS,
        open_ended=True,
    ),
    "delivery": Case(pack_delivery, bodies.unpack_delivery, examples.DELIVERY, open_ended=True),
    "delivery, first attempts": Case(
        pack_delivery, bodies.unpack_delivery, examples.DELIVERED_FIRST, open_ended=True
    ),
    "delivery of nothing": Case(
        pack_delivery, bodies.unpack_delivery, examples.NOTHING_CAME, open_ended=True
    ),
    "settled": Case(spread(bodies.pack_settled), bodies.unpack_settled, examples.SETTLED),
    "extended": Case(spread(bodies.pack_extended), bodies.unpack_extended, (1, 2)),
    "rows": Case(pack_rows, bodies.unpack_rows, examples.ROWS, open_ended=True),
    "records": Case(pack_records, bodies.unpack_records, examples.RECORDS_READ, open_ended=True),
    "records, expired": Case(
        pack_records, bodies.unpack_records, examples.RECORDS_EXPIRED, open_ended=True
    ),
    "bytes": Case(pack_bytes, bodies.unpack_bytes, examples.BYTES, open_ended=True),
    "marks": Case(bodies.pack_marks, bodies.unpack_marks, examples.MARKS),
    "ack": Case(bodies.pack_ack, bodies.unpack_ack, examples.ACK),
    "pong": Case(bodies.pack_pong, bodies.unpack_pong, -5),
    "error": Case(
        lambda value: bodies.pack_error(*value, retriable=True, refresh_routes=False),
        bodies.unpack_error,
        (140, "zu früh"),
    ),
}
ALL = REQUESTS | ANSWERS
