"""The leadership record: who may append in a broker group, and whose acknowledgements count.

A coordinator stores it as a msgpack map, at most 64 KiB. What the coordinator returns is untrusted:
every field is checked when it is read, and again before it is written. A map that breaks a rule
raises ``BadRecord``; whoever reads it raises an alarm and changes nothing.

How the record may change in later versions of TernMQ:

* A new fact is a new field at the top. A broker that does not know the field keeps it over its own
  changes. The arrays (writer, members, floor) never get longer.
* If it would be wrong to keep a new fact without knowing it, ``FORMAT`` is raised. Older brokers
  then refuse the record, and do not change it.

Beside the record there is the progress of the reign, under a key of its own: how far the primary
is committed. It changes every 10 s, and so is not part of the record.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw

from ternmq.model.errors import InvalidName
from ternmq.model.specs import check_name
from ternmq.model.types import NO_POSITION, Epoch, Position

FORMAT: Final = 1
"""Version of the format. Raise it if an older broker must not change a record that it keeps fields
of; then ``unpack`` has to read the format before, and a file in ``tests/golden`` is added."""
MAX_BYTES: Final = 64 * 1024
"""Largest packed record."""
MAX_PROGRESS_BYTES: Final = 64
MAX_MEMBERS: Final = 64
MAX_WHY: Final = 500
"""Most characters of ``why``."""
MAX_VERSION: Final = 2**31 - 1
"""ZooKeeper counts versions in 32 bits with a sign."""
_MAX_I64: Final = 2**63 - 1
_MAX_U32: Final = 2**32 - 1

_U32 = Annotated[int, Meta(ge=0, le=_MAX_U32)]
# msgpack has no integer above 2**64 - 1.
_U64 = Annotated[int, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=0, le=_MAX_I64)]
_Name = Annotated[str, Meta(min_length=1, max_length=127)]


class BadRecord(Exception):
    """What a coordinator holds is not what a broker of this version writes; the text says why.

    It reaches no client, and has no code. Who reads it raises an alarm, and neither acts on the
    value nor replaces it.
    """


class Writes(enum.Enum):
    """Whether the broker group takes new messages."""

    OPEN = "open"
    CLOSED = "closed"


class Writer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Who made a change. No two changes have the same writer.

    Attributes:
        broker: Name of the broker, or of the operator's command.
        incarnation: 64 random bits of the process, never 0.
        counter: Number of the change among those that the process tried: 1, 2, 3 ...
    """

    broker: _Name
    incarnation: _U64
    counter: _Count


class Member(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A broker whose acknowledgement every answer needs.

    Attributes:
        broker: Its name.
        incarnation: The process that is meant; 0: every process of the broker, because it
            acknowledges only what its disk has (``ack = "synced"``).
    """

    broker: _Name
    incarnation: _U64


class Floor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The EPOCH record of the last reign that began. A journal without it is too old to lead.

    Attributes:
        epoch: The reign.
        position: Where the record begins in the journal.
        crc: CRC32C of the record.
    """

    epoch: Epoch
    position: Position
    crc: int


class Progress(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How far a reign is committed; its primary writes it every 10 s.

    Attributes:
        epoch: The reign.
        position: Its commit mark: everything before it is on every member.
    """

    epoch: Epoch
    position: Position


class Reach(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How far a copy of the journal reaches.

    Attributes:
        epoch: Of its last record.
        end: Behind its last record.
        committed: The largest commit mark that it was told; nothing below is ever parted from.
    """

    epoch: Annotated[Epoch, Meta(ge=0, le=_MAX_U32)]
    end: Annotated[Position, Meta(ge=0)]
    committed: Annotated[Position, Meta(ge=0)]


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """The leadership record of a broker group.

    Attributes:
        version: Version that the coordinator gives this state of the record: 1 when it is created,
            one more with every change.
        writer: Who made this change.
        journal: Number of the broker group's journal, never 0; made with the group.
        epoch: The reign that may append. 0: there was none yet.
        primary: The broker of that reign.
        members: Whose acknowledgements count; the primary is one of them.
        writes: Whether the group takes new messages.
        floor: EPOCH record of the last reign that began; None: no reign said so yet.
        cut_below: Position from which on an operator accepted the loss of records, else None. It
            stays until another loss is accepted.
        cut_epoch: The reign that began with that loss: journals whose records are all of earlier
            reigns may lack nothing but what follows ``cut_below``; 0: there was none.
        cut_at_us: When it was accepted, by the clock of the broker that began the reign, for
            people.
        why: What led to this change, for people.
        at_us: When, by the writer's wall clock, for people.
        kept: Fields of later versions, packed, by name; empty in a record that is made here.
    """

    version: int
    writer: Writer
    journal: int
    epoch: Epoch
    primary: str
    members: tuple[Member, ...]
    writes: Writes = Writes.OPEN
    floor: Floor | None = None
    cut_below: Position | None = None
    cut_epoch: Epoch = Epoch(0)
    cut_at_us: int = 0
    why: str = ""
    at_us: int = 0
    kept: Mapping[str, bytes] = {}


# The same fields with their bounds: what a map must have to be a record. NewTypes take no bounds.
class _FloorForm(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    epoch: _U32
    position: _U64
    crc: _U32


class _ProgressForm(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    epoch: _U32
    position: _U64


class _Form(msgspec.Struct, frozen=True, kw_only=True):
    format: Annotated[int, Meta(ge=FORMAT, le=FORMAT)]
    version: Annotated[int, Meta(ge=1, le=MAX_VERSION)]
    writer: Writer
    journal: _U64
    epoch: _U32
    primary: _Name
    members: Annotated[tuple[Member, ...], Meta(min_length=1, max_length=MAX_MEMBERS)]
    writes: Writes
    floor: _FloorForm | None
    cut_below: _U64 | None
    cut_epoch: _U32 = 0
    cut_at_us: _Count = 0
    why: Annotated[str, Meta(max_length=MAX_WHY)]
    at_us: _Count


class _Format(msgspec.Struct, frozen=True):
    format: Annotated[int, Meta(ge=0)]


_KNOWN: Final = frozenset(_Form.__struct_fields__)
_decode_format: Final = msgspec.msgpack.Decoder(_Format).decode
_decode_form: Final = msgspec.msgpack.Decoder(_Form).decode
_decode_map: Final = msgspec.msgpack.Decoder(dict[str, Raw]).decode
_decode_progress: Final = msgspec.msgpack.Decoder(_ProgressForm).decode
_encode: Final = msgspec.msgpack.encode


def pack(record: Leadership) -> bytes:
    """Return the bytes of a record, at most ``MAX_BYTES``.

    Raises:
        BadRecord: ``unpack`` would refuse them.
    """
    fields: dict[str, Any] = {name: Raw(value) for name, value in record.kept.items()}
    if not _KNOWN.isdisjoint(fields):
        raise BadRecord(f"fields of later versions have names of known ones: {sorted(fields)}")
    fields["format"] = FORMAT
    for name in record.__struct_fields__:
        if name != "kept":
            fields[name] = getattr(record, name)
    try:
        value = _encode(fields)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRecord(f"the record cannot be packed: {error}") from error
    unpack(value, record.version)
    return value


def unpack(value: bytes, version: int) -> Leadership:
    """Return the record of its bytes.

    Args:
        value: What the coordinator holds.
        version: The version that the coordinator has for it.

    Raises:
        BadRecord: They are not a record, or the record is of another version.
    """
    if len(value) > MAX_BYTES:
        raise BadRecord(f"a leadership record of {len(value):,} bytes; at most {MAX_BYTES:,}")
    try:
        found = _decode_format(value).format
        if found > FORMAT:
            raise BadRecord(
                f"the leadership record has format {found}, and this broker knows {FORMAT}: a "
                "newer version of TernMQ wrote it"
            )
        form = _decode_form(value)
        kept = {key: bytes(raw) for key, raw in _decode_map(value).items() if key not in _KNOWN}
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadRecord(f"not a leadership record: {error}") from error
    if form.version != version:
        raise BadRecord(
            f"the leadership record says that it is version {form.version}, and the coordinator "
            f"has version {version}: something other than a broker wrote or restored it"
        )
    _check(form)
    floor = form.floor
    return Leadership(
        version=form.version,
        writer=form.writer,
        journal=form.journal,
        epoch=Epoch(form.epoch),
        primary=form.primary,
        members=form.members,
        writes=form.writes,
        floor=None if floor is None else _floor(floor),
        cut_below=None if form.cut_below is None else Position(form.cut_below),
        cut_epoch=Epoch(form.cut_epoch),
        cut_at_us=form.cut_at_us,
        why=form.why,
        at_us=form.at_us,
        kept=kept,
    )


def pack_progress(progress: Progress) -> bytes:
    """Return the bytes of the progress, at most ``MAX_PROGRESS_BYTES``.

    Raises:
        BadRecord: ``unpack_progress`` would refuse them.
    """
    try:
        value = _encode(progress)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRecord(f"the progress cannot be packed: {error}") from error
    unpack_progress(value)
    return value


def unpack_progress(value: bytes) -> Progress:
    """Return the progress of its bytes.

    Raises:
        BadRecord: They are not a progress.
    """
    if len(value) > MAX_PROGRESS_BYTES:
        raise BadRecord(f"a progress of {len(value):,} bytes; at most {MAX_PROGRESS_BYTES}")
    try:
        form = _decode_progress(value)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadRecord(f"not the progress of a reign: {error}") from error
    _check_position("progress", form.position)
    return Progress(Epoch(form.epoch), Position(form.position))


def leadership_key(group: str) -> str:
    """Return the key of a broker group's leadership record.

    Raises:
        InvalidName: The name is not allowed.
    """
    return f"leadership/{check_name(group, 'the name of a broker group')}"


def progress_key(group: str) -> str:
    """Return the key of a broker group's progress.

    Raises:
        InvalidName: The name is not allowed.
    """
    return f"progress/{check_name(group, 'the name of a broker group')}"


def _check(form: _Form) -> None:
    """Return if the fields fit each other."""
    try:
        for name in (form.writer.broker, form.primary, *[one.broker for one in form.members]):
            check_name(name, "a broker")
    except InvalidName as error:
        raise BadRecord(f"not a leadership record: {error}") from error
    names = [one.broker for one in form.members]
    if len(set(names)) < len(names):
        raise BadRecord(f"a broker is in the members twice: {names}")
    if form.primary not in names:
        raise BadRecord(f"the primary {form.primary} is not one of the members {names}")
    if form.writer.incarnation == 0:
        raise BadRecord("the writer has incarnation 0")
    if form.journal == 0:
        raise BadRecord("the journal has number 0")
    if form.floor is not None:
        _check_position("floor", form.floor.position)
        if form.floor.epoch > form.epoch:
            raise BadRecord(f"the floor is of epoch {form.floor.epoch}, above {form.epoch}")
    if form.cut_below is not None:
        _check_position("cut_below", form.cut_below)
    if form.cut_epoch > form.epoch:
        raise BadRecord(f"loss was accepted in epoch {form.cut_epoch}, above {form.epoch}")


def _floor(form: _FloorForm) -> Floor:
    return Floor(Epoch(form.epoch), Position(form.position), form.crc)


def _check_position(what: str, position: int) -> None:
    if position >= NO_POSITION:
        raise BadRecord(f"{what} has no position")
