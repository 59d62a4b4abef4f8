"""Every error that TernMQ raises, under one root.

    TernMQError
    +-- RefusedError             the broker said no; nothing was stored (definite)
    |   +-- InvalidRequest, UnknownTopic, UnknownQueue, UnknownGroup, TopicExists, GroupExists ...
    |   +-- Busy, DiskFull       the same call may pass later
    |   +-- LeaseExpired, OffsetExpired, ResendTooOld, IdConflict ...
    +-- JournalError             the journal cannot go on
        +-- JournalFailed        a write or sync failed: stop answering, exit, recover at the next
        start +-- JournalFull          no room: decided before anything was written
        +-- CorruptJournal       damage below the durable position: file and byte are named
        +-- AlreadyRunning       another process owns the data folder

Each class carries a stable ``code``, whether the same request may succeed later (``retriable``) and
a ``hint`` that says what to do. Codes are never reused; a test keeps them apart. They appear in
replies of the core and, later, on the wire.
"""

from __future__ import annotations

from typing import ClassVar


class TernMQError(Exception):
    """Root of every error of the package."""

    code: ClassVar[int] = 0
    retriable: ClassVar[bool] = False
    hint: ClassVar[str] = ""

    def __str__(self) -> str:
        """Say what happened and what to do."""
        text = super().__str__()
        return f"{text} ({self.hint})" if self.hint else text


class RefusedError(TernMQError):
    """The broker refused a request; nothing of it was stored."""

    code = 100


class InvalidRequest(RefusedError):
    """The request breaks a rule that does not depend on the broker's state."""

    code = 101


class InvalidName(InvalidRequest):
    """A name has other characters than ``A-Z a-z 0-9 . _ -`` or a wrong length."""

    code = 102
    hint = "use 1 to 127 of A-Z a-z 0-9 . _ -; names that begin with $ are the broker's own"


class InvalidBatch(InvalidRequest):
    """The batch is damaged, or was made for another topic."""

    code = 103


class OrderingKeyRequired(InvalidRequest):
    """The topic is ordered and the batch is not keyed, or the other way round."""

    code = 104
    hint = "every message of an ordered topic needs an ordering key"


class ModeNotAllowed(InvalidRequest):
    """The consume mode does not fit the topic."""

    code = 105
    hint = "mode ordered needs an ordered topic"


class UnknownTopic(RefusedError):
    """There is no topic of that name."""

    code = 110
    hint = "create the topic first"


class UnknownQueue(RefusedError):
    """The topic has no queue of that number."""

    code = 111


class UnknownGroup(RefusedError):
    """There is no such consumer group on the topic."""

    code = 112


class UnknownSession(RefusedError):
    """The session is not known here: it ended, or never was."""

    code = 113
    hint = "join again"


class TopicExists(RefusedError):
    """A topic of that name is there already."""

    code = 114


class GroupExists(RefusedError):
    """The group consumes that topic already."""

    code = 115


class GroupSettingsMismatch(RefusedError):
    """A stated filter, mode or start differs from what the group has."""

    code = 116


class LeaseExpired(RefusedError):
    """The lease ended, or the rows are no longer held under it."""

    code = 120
    hint = "the messages will be, or were, delivered again"


class OffsetExpired(RefusedError):
    """The offset lies below the oldest message kept."""

    code = 121


class MessageNotFound(RefusedError):
    """No message of that id, offset or key is kept here."""

    code = 122


class IdConflict(RefusedError):
    """The same identifier was used with other content."""

    code = 130


class ResendTooOld(RefusedError):
    """The resend reaches below what deduplication remembers; its first outcome is unknown."""

    code = 131


class StrictNeedsReplica(RefusedError):
    """A strict topic was sent to while fewer than two copies could be made."""

    code = 132
    retriable = True


class Busy(RefusedError):
    """A limit is reached for now."""

    code = 140
    retriable = True
    hint = "try again later"


class DiskFull(RefusedError):
    """There is no room for more messages; consuming and acknowledging go on."""

    code = 141
    retriable = True
    hint = "free disk space, shorten the retention or consume the backlog"


class GroupPaused(RefusedError):
    """The group is paused on this topic."""

    code = 142
    retriable = True


class MessageTooLarge(InvalidRequest):
    """The batch does not fit the configured limit or a journal segment."""

    code = 143


class JournalError(TernMQError):
    """The journal cannot do what was asked."""

    code = 200


class JournalFailed(JournalError):
    """A write or a sync failed; nothing after it may be believed until the next start."""

    code = 201
    hint = "the broker must stop; look at the disk, then start it again"


class JournalFull(JournalError):
    """No segment is there to take the record."""

    code = 202
    retriable = True


class CorruptJournal(JournalError):
    """Bytes that were durable are damaged."""

    code = 203
    hint = "restore the file from a replica or a backup, or run `ternmq journal repair`"

    def __init__(self, message: str, *, file: str = "", byte: int = 0) -> None:
        super().__init__(message)
        self.file = file
        self.byte = byte


class RecordTooLarge(JournalError):
    """A record that no segment could hold."""

    code = 204


class AlreadyRunning(JournalError):
    """Another process owns the data folder."""

    code = 205
    hint = "stop the other broker, or give this one a folder of its own"


class DiskError(JournalError):
    """The disk refused an operation."""

    code = 210


class DiskWriteError(DiskError):
    """A write failed or was short."""

    code = 211


class DiskSyncError(DiskError):
    """A sync failed: what was written since the last good one may be lost."""

    code = 212


class NoSpace(DiskError):
    """The disk has no room for a new file."""

    code = 213


class FileMissing(DiskError):
    """There is no file of that name."""

    code = 215


class DiskReadError(DiskError):
    """The disk could not read what was asked for."""

    code = 216


class UnknownRecordKind(CorruptJournal):
    """A record of a kind that this version does not know and may not skip."""

    code = 214
    hint = "the journal was written by a newer version"
