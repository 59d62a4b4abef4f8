"""Bodies with binary layouts of their own: of errors, and of the commands that move messages.

Everything is imported from here. Each file has its ruler above the codec: ``refusal`` (an error),
``send``, ``prepare``, ``pull``, ``settle``, ``extend``, ``read``, ``journal``, ``checked``
(transactions with check-back), ``connection`` (cancel, ping), ``stream`` (between the brokers of a
group); they share ``checks``. All numbers
are little-endian. *names* in a ruler are the bytes of the names whose lengths the head contains,
one after the other, zero padded to 8. The same rulers are in ``docs/protocol/messages.md``.

Two rules apply to all bodies. The broker checks requests: reserved bytes must be 0, lengths must
fit exactly, names must be allowed; else it answers ``InvalidRequest``, and the connection goes on.
The client checks answers: lengths must fit; reserved bytes are ignored, since a newer broker may
use them. Else it raises ``ProtocolError``, and the connection ends, since the outcome of the
request cannot be known.

Records are those of ``docs/format/records.md``: as stored in the journal, or made by the broker for
this answer from a stored one (then the batch in it is a slice). This package does not parse batches
or records.
"""

from __future__ import annotations

from ternmq.wire.bodies.checked import (
    TRANSACTION_PREPARE,
    TRANSACTION_PREPARED,
    TRANSACTION_READ,
    TRANSACTION_ROWS,
    TransactionPrepare,
    TransactionPrepared,
    TransactionRead,
    TransactionRows,
    TransactionSettle,
    pack_transaction_prepare,
    pack_transaction_prepared,
    pack_transaction_read,
    pack_transaction_settle,
    transaction_rows_head,
    unpack_transaction_prepare,
    unpack_transaction_prepared,
    unpack_transaction_read,
    unpack_transaction_rows,
    unpack_transaction_settle,
)
from ternmq.wire.bodies.checks import MAX_NAME_BYTES, NO_OFFSET, NO_QUEUE
from ternmq.wire.bodies.connection import (
    CANCEL,
    PONG,
    pack_cancel,
    pack_pong,
    unpack_cancel,
    unpack_nothing,
    unpack_pong,
)
from ternmq.wire.bodies.extend import (
    EXTEND,
    EXTENDED,
    Extend,
    pack_extend,
    pack_extended,
    unpack_extend,
    unpack_extended,
)
from ternmq.wire.bodies.journal import (
    EXPIRED,
    JOURNAL_READ,
    RECORDS,
    WITHOUT_BODIES,
    JournalRead,
    Records,
    pack_journal_read,
    records_head,
    unpack_journal_read,
    unpack_records,
)
from ternmq.wire.bodies.prepare import (
    PREPARE,
    PREPARED,
    Prepare,
    Prepared,
    pack_prepare,
    pack_prepared,
    unpack_prepare,
    unpack_prepared,
)
from ternmq.wire.bodies.pull import (
    DELIVERY,
    MAX_LAST_REASON_BYTES,
    PULL,
    RUN,
    Delivery,
    LastFailure,
    Pull,
    Run,
    delivery_head,
    pack_failures,
    pack_pull,
    unpack_delivery,
    unpack_pull,
)
from ternmq.wire.bodies.read import (
    READ,
    ROWS,
    Read,
    Rows,
    pack_read,
    rows_head,
    unpack_read,
    unpack_rows,
)
from ternmq.wire.bodies.refusal import (
    ERROR,
    MAX_TEXT_BYTES,
    REFRESH_ROUTES,
    RETRIABLE,
    pack_error,
    unpack_error,
    unpack_refusal,
)
from ternmq.wire.bodies.send import (
    CONFLICT,
    DUPLICATE,
    RECEIPT,
    RECEIPT_ROW,
    SEND,
    WRITTEN,
    Receipt,
    ReceiptRow,
    Send,
    pack_receipt,
    pack_send,
    pack_stored,
    send_prefix,
    unpack_receipt,
    unpack_send,
)
from ternmq.wire.bodies.settle import (
    BY_POLICY,
    MAX_REASON_BYTES,
    MAX_SPANS,
    OUTCOMES,
    SETTLE,
    SETTLED,
    SPAN,
    Settle,
    Settled,
    pack_settle,
    pack_settled,
    unpack_settle,
    unpack_settled,
)
from ternmq.wire.bodies.stream import (
    ACK,
    BYTES,
    MARKS,
    PIECE_BYTES,
    Ack,
    Bytes,
    Marks,
    bytes_head,
    pack_ack,
    pack_marks,
    unpack_ack,
    unpack_bytes,
    unpack_marks,
)

__all__ = [
    "ACK", "BYTES", "BY_POLICY", "CANCEL", "CONFLICT", "DELIVERY", "DUPLICATE", "ERROR", "EXPIRED",
    "EXTEND", "EXTENDED", "JOURNAL_READ", "MARKS", "MAX_LAST_REASON_BYTES", "MAX_NAME_BYTES",
    "MAX_REASON_BYTES", "MAX_SPANS", "MAX_TEXT_BYTES", "NO_OFFSET", "NO_QUEUE", "OUTCOMES",
    "PIECE_BYTES", "PONG", "PREPARE", "PREPARED", "PULL", "READ", "RECEIPT", "RECEIPT_ROW",
    "RECORDS", "REFRESH_ROUTES", "RETRIABLE", "ROWS", "RUN", "SEND", "SETTLE", "SETTLED", "SPAN",
    "TRANSACTION_PREPARE", "TRANSACTION_PREPARED", "TRANSACTION_READ", "TRANSACTION_ROWS",
    "WITHOUT_BODIES", "WRITTEN", "Ack", "Bytes", "Delivery", "Extend", "JournalRead", "LastFailure",
    "Marks", "Prepare", "Prepared", "Pull", "Read", "Receipt", "ReceiptRow", "Records", "Rows",
    "Run", "Send", "Settle", "Settled", "TransactionPrepare", "TransactionPrepared",
    "TransactionRead", "TransactionRows", "TransactionSettle", "bytes_head", "delivery_head",
    "pack_ack", "pack_cancel", "pack_error", "pack_extend", "pack_extended", "pack_failures",
    "pack_journal_read", "pack_marks", "pack_pong", "pack_prepare", "pack_prepared", "pack_pull",
    "pack_read", "pack_receipt", "pack_send", "pack_settle", "pack_settled", "pack_stored",
    "pack_transaction_prepare", "pack_transaction_prepared", "pack_transaction_read",
    "pack_transaction_settle", "records_head", "rows_head", "send_prefix", "transaction_rows_head",
    "unpack_ack", "unpack_bytes", "unpack_cancel", "unpack_delivery", "unpack_error",
    "unpack_extend", "unpack_extended", "unpack_journal_read", "unpack_marks", "unpack_nothing",
    "unpack_pong", "unpack_prepare", "unpack_prepared", "unpack_pull", "unpack_read",
    "unpack_receipt", "unpack_records", "unpack_refusal", "unpack_rows", "unpack_send",
    "unpack_settle", "unpack_settled", "unpack_transaction_prepare", "unpack_transaction_prepared",
    "unpack_transaction_read", "unpack_transaction_rows", "unpack_transaction_settle",
]  # fmt: skip
