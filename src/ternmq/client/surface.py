"""What applications import, under ``ternmq``: the client, its arguments, results and errors.

``ternmq`` exports these names, and imports this module when the first of them is used.
"""

from __future__ import annotations

from datetime import timedelta

from ternmq.client.admin.failedmessage import FailedMessage, FailedOutcome
from ternmq.client.admin.failedquery import FailedQuery
from ternmq.client.admin.lookup import FoundMessage
from ternmq.client.admin.redriving import Redriven
from ternmq.client.admin.replay import Replayed
from ternmq.client.client import Client
from ternmq.client.connection.connecting import options_of
from ternmq.client.connection.options import Options
from ternmq.client.connection.stats import ClientStats
from ternmq.client.consumer.concluding import Reject, Retry
from ternmq.client.consumer.consuming import Consumer
from ternmq.client.consumer.deliveries import Deliveries
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.consumer.membership import AssignedQueues
from ternmq.client.content.delays import delay_level
from ternmq.client.content.message import Failure, Message, MessageId, Receipt, parse_id
from ternmq.client.declaration.changes import Change
from ternmq.client.declaration.policy import RetryPolicy
from ternmq.client.declaration.topic import Topic
from ternmq.client.handler.depends import Depends
from ternmq.client.handler.middleware import Outbound
from ternmq.client.transacting import Committed, Prepared
from ternmq.client.transaction.decision import Decision
from ternmq.client.transaction.prepared import PreparedMessage, PreparedTransaction
from ternmq.client.transaction.transaction import Transaction
from ternmq.model.errors import (
    AlreadyDelivered,
    AlreadySettled,
    BufferFull,
    Busy,
    CannotConnect,
    ClientClosed,
    ClientError,
    ClientForked,
    ClientStalled,
    ConnectionLost,
    DatabaseNotPrepared,
    DecodeError,
    DiskFull,
    DueTooFar,
    EncodeError,
    Forbidden,
    GroupBusy,
    GroupExists,
    GroupPaused,
    GroupSettingsMismatch,
    IdConflict,
    InstanceTaken,
    InvalidFilter,
    InvalidHandler,
    InvalidName,
    InvalidRequest,
    InvalidUrl,
    LeaseExpired,
    MessageNotFound,
    MessageTooLarge,
    ModeNotAllowed,
    NoChecker,
    NotABroker,
    NotOwner,
    NotPrimary,
    NotThisDatabase,
    OffsetExpired,
    OrderingKeyRequired,
    OutcomeUnknown,
    OutsideTransaction,
    PartialSendError,
    ProducerGroupTaken,
    ProtocolError,
    ReadOnly,
    RefusedError,
    ReplayTooLarge,
    ResendTooOld,
    SendTimeout,
    ShardsChanged,
    ShuttingDown,
    StrictNeedsReplica,
    TernMQError,
    TopicExists,
    TopicNotDurable,
    TopicNotOrdered,
    TopologyMismatch,
    TransactionConflict,
    TransactionDecided,
    TransactionFailed,
    TransactionInUse,
    TransactionNotOpen,
    TransactionTooLarge,
    TransactionTooOld,
    Unauthenticated,
    UnknownApp,
    UnknownGroup,
    UnknownProducerGroup,
    UnknownQueue,
    UnknownTopic,
    UnknownTransaction,
    Unreadable,
    UnsentMessages,
    WriterTaken,
    WrongEventLoop,
)
from ternmq.model.specs import Durability, Exhausted, Expired, Mode, Start
from ternmq.wire.control import (
    AppInfo,
    CheckedTransaction,
    FailedCounts,
    FailureInfo,
    GrantInfo,
    GroupInfo,
    GroupQueueInfo,
    ProducerGroupInfo,
    QueueInfo,
    RowStanding,
    ScheduledHour,
    ScheduledInfo,
    TopicInfo,
)


def connect(
    url: str | None = None,
    *,
    app: str | None = None,
    token: str | None = None,
    timeout: float | timedelta = 10.0,
    max_processing_time: float | timedelta = 600.0,
    drain_timeout: float | timedelta = 30.0,
    instance: str | None = None,
    options: Options | None = None,
) -> Client:
    """Return a client of a broker. No I/O: ``await``, ``async with`` or its first use connects.

    Args:
        url: ``ternmq://host:7117``, or ``ternmqs://host:7117`` over TLS, followed by ``?ca=FILE``
            if the certificates to trust are not the system's; several brokers, of which one serves:
            ``ternmq://a:7117,b:7117``; None: ``TERNMQ_URL``, else the broker of this machine.
        app: Name of the app; None: from the url, else ``TERNMQ_APP``, else no app.
        token: Token of the app; None: from the url, else ``TERNMQ_TOKEN``, else no token. With a
            token but no app, the client is created, and its first connection to a broker that
            requires tokens fails with Unauthenticated. A broker that requires none ignores it.
        timeout: Longest time for a send or another request in all, unless the call has a
            ``timeout`` of its own. Times are seconds or timedeltas, here and in every other call.
        max_processing_time: How long the leases of messages are extended; while a handler runs on a
            message, its lease is extended until it ends.
        drain_timeout: How long running handlers have to finish when the client stops.
        instance: Name of this process among the instances of its application: of its broadcast
            consumers, and as a member of groups whose queues belong to members. None:
            ``TERNMQ_INSTANCE``; without it, broadcast consumers have no name, and a member has the
            name of the machine.
        options: All settings at once, instead of the others.

    Raises:
        InvalidUrl: The url is not valid.
        InvalidRequest: A setting is out of its range.
    """
    if options is None:
        options = options_of(url, app, token, timeout, max_processing_time, drain_timeout, instance)
    return Client(Options.checked(options))


__all__ = [
    "connect", "Client", "Options", "Message", "Receipt", "Failure", "MessageId", "parse_id",
    "AssignedQueues", "Consumer", "Delivery", "Deliveries", "Retry", "Reject", "ClientStats",
    "FoundMessage",
    "FailedMessage", "FailedQuery", "FailedCounts", "FailedOutcome", "FailureInfo", "RowStanding",
     "Redriven", "Replayed", "Prepared", "Committed",
    "TopicInfo", "QueueInfo", "GroupInfo", "GroupQueueInfo", "AppInfo", "GrantInfo", "Change",
    "ScheduledHour", "ScheduledInfo", "delay_level",
    "Transaction", "PreparedTransaction", "PreparedMessage", "Decision", "CheckedTransaction",
    "ProducerGroupInfo",
    "Topic", "RetryPolicy", "Depends", "Outbound", "Durability", "Exhausted", "Expired", "Mode",
    "Start",
    "TernMQError", "RefusedError", "ClientError",
    "AlreadyDelivered", "AlreadySettled", "BufferFull", "Busy", "CannotConnect", "ClientClosed",
    "ClientForked", "ClientStalled", "ConnectionLost", "DatabaseNotPrepared", "DecodeError",
    "DiskFull",
    "DueTooFar",
    "EncodeError", "Forbidden", "GroupBusy", "GroupExists", "GroupPaused", "GroupSettingsMismatch",
    "IdConflict", "InstanceTaken", "InvalidFilter", "InvalidHandler", "InvalidName",
    "InvalidRequest", "InvalidUrl",
    "LeaseExpired",
    "MessageNotFound", "MessageTooLarge", "ModeNotAllowed", "NoChecker", "NotABroker", "NotOwner",
    "NotPrimary", "NotThisDatabase", "OffsetExpired", "OrderingKeyRequired", "OutcomeUnknown",
    "OutsideTransaction", "PartialSendError",
    "ProducerGroupTaken", "ProtocolError", "ReadOnly", "ReplayTooLarge", "ResendTooOld",
    "SendTimeout", "ShardsChanged", "ShuttingDown", "StrictNeedsReplica", "TopicExists",
    "TopicNotDurable", "TopicNotOrdered",
    "TopologyMismatch", "TransactionConflict", "TransactionDecided", "TransactionFailed",
    "TransactionInUse", "TransactionNotOpen", "TransactionTooLarge",
    "TransactionTooOld", "Unauthenticated", "UnknownApp", "UnknownGroup",
    "UnknownProducerGroup", "UnknownQueue",
    "UnknownTopic", "UnknownTransaction", "Unreadable", "UnsentMessages", "WriterTaken",
    "WrongEventLoop",
]  # fmt: skip
