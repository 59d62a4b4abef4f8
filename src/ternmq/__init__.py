"""TernMQ: a message broker that you ``pip install``. This is what applications import.

``connect`` makes a client; everything else here is what it takes, returns and raises. The same,
blocking: ``ternmq.sync``. A broker in a test: ``ternmq.testing``. Other packages are the broker's
own; ``ARCHITECTURE.md`` says which is for what.
"""

from __future__ import annotations

from ternmq.client.again import Replayed
from ternmq.client.client import Client
from ternmq.client.connecting import options_of
from ternmq.client.consumer import Consumer
from ternmq.client.deadletters import FailedMessage, Redriven
from ternmq.client.deliveries import Deliveries
from ternmq.client.delivery import Delivery, Reject, Retry
from ternmq.client.lookup import FoundMessage
from ternmq.client.message import Failure, Message, Receipt
from ternmq.client.options import Options
from ternmq.client.stats import ClientStats
from ternmq.client.transacting import Committed, Prepared
from ternmq.model.errors import (
    AlreadySettled,
    BufferFull,
    Busy,
    CannotConnect,
    ClientClosed,
    ClientError,
    ClientForked,
    ConnectionLost,
    DecodeError,
    DiskFull,
    EncodeError,
    Forbidden,
    GroupExists,
    GroupPaused,
    GroupSettingsMismatch,
    IdConflict,
    InvalidName,
    InvalidRequest,
    InvalidUrl,
    LeaseExpired,
    MessageNotFound,
    MessageTooLarge,
    ModeNotAllowed,
    OffsetExpired,
    OrderingKeyRequired,
    PartialSendError,
    ProtocolError,
    RefusedError,
    ReplayTooLarge,
    ResendTooOld,
    SendTimeout,
    ShuttingDown,
    StrictNeedsReplica,
    TernMQError,
    TopicExists,
    TransactionConflict,
    TransactionDecided,
    TransactionTooLarge,
    TransactionTooOld,
    Unauthenticated,
    UnknownApp,
    UnknownGroup,
    UnknownQueue,
    UnknownTopic,
    UnknownTransaction,
    Unreadable,
    UnsentMessages,
    WriterTaken,
)
from ternmq.model.specs import Durability, Exhausted, Mode, RetryPolicy, Start
from ternmq.wire.control import GrantInfo

__version__ = "0.1.0.dev0"


def connect(
    url: str | None = None,
    *,
    app: str | None = None,
    token: str | None = None,
    timeout: float = 10.0,
    max_processing_time: float = 600.0,
    options: Options | None = None,
) -> Client:
    """Return a client of a broker. No I/O: ``await`` it, enter it, or just use it to connect.

    Args:
        url: ``ternmq://host:7117``, or ``ternmqs://`` over TLS; None: ``TERNMQ_URL``, else the
            broker of this machine.
        app: The application; None: as the url says, ``TERNMQ_APP``, else none.
        token: Its secret; None: as the url says, ``TERNMQ_TOKEN``, else none.
        timeout: Seconds that a send or request may take in all, at most 10 for sends.
        max_processing_time: Seconds for which the leases of messages are extended.
        options: All settings at once, instead of the others.

    Raises:
        InvalidUrl: The url is none.
        InvalidRequest: A setting is out of its range.
    """
    if options is None:
        options = options_of(url, app, token, timeout, max_processing_time)
    return Client(options)


__all__ = [
    "connect", "Client", "Options", "Message", "Receipt", "Failure",
    "Consumer", "Delivery", "Deliveries", "Retry", "Reject", "ClientStats", "FoundMessage",
    "FailedMessage", "Redriven", "Replayed", "GrantInfo", "Prepared", "Committed",
    "Durability", "Exhausted", "Mode", "RetryPolicy", "Start",
    "TernMQError", "RefusedError", "ClientError",
    "AlreadySettled", "BufferFull", "Busy", "CannotConnect", "ClientClosed", "ClientForked",
    "ConnectionLost", "DecodeError", "DiskFull", "EncodeError", "Forbidden", "GroupExists",
    "GroupPaused", "GroupSettingsMismatch", "IdConflict", "InvalidName", "InvalidRequest",
    "InvalidUrl", "LeaseExpired", "MessageNotFound", "MessageTooLarge", "ModeNotAllowed",
    "OffsetExpired", "OrderingKeyRequired", "PartialSendError", "ProtocolError",
    "ReplayTooLarge", "ResendTooOld", "SendTimeout", "ShuttingDown", "StrictNeedsReplica",
    "TopicExists", "TransactionConflict", "TransactionDecided", "TransactionTooLarge",
    "TransactionTooOld", "Unauthenticated", "UnknownApp", "UnknownGroup", "UnknownQueue",
    "UnknownTopic", "UnknownTransaction", "Unreadable", "UnsentMessages", "WriterTaken",
    "__version__",
]  # fmt: skip
