"""What operators ask of a broker group: its settings, and orders to change its primary.

They are stored beside the leadership record, under keys of their own, and decide nothing about
safety: a broker that reads an old one, or none, is as safe as any. An order counts for one epoch:
as soon as another reign has begun, it is done, or too late.

Changing these formats: a new setting is a new field with a default; older brokers keep it over
their own changes. Values that are not known are refused, so a new value raises ``FORMAT``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw

from ternmq.cluster.coordination.record import MAX_MEMBERS, BadRecord
from ternmq.model.errors import InvalidName
from ternmq.model.specs import check_name
from ternmq.model.types import Epoch, Position
from ternmq.model.units import write_duration

FORMAT: Final = 1
MAX_BYTES: Final = 4096
_DAY_US: Final = 86_400_000_000
LEAST_LEASE_US: Final = 1_000_000
"""MARKS come every 250 ms, and a broker on a busy machine may miss two of them."""
MOST_LEASE_US: Final = 60_000_000
LEAST_SILENT_US: Final = 500_000
_MOST_SILENT: Final = 4, 5
"""Largest part of the lease after which a member is taken out: what it has promised is relied on
for nine tenths of the lease, and without a promise the primary answers nobody."""


class Failover(enum.Enum):
    """What happens when the primary of a broker group is gone."""

    AUTOMATIC = "automatic"
    """A member takes over, and takes new messages."""
    READS = "reads"
    """A member takes over for deliveries and acknowledgements. New messages are taken again when
    two copies exist."""
    OPERATOR = "operator"
    """Nothing, until an operator promotes a member."""


class Copying(enum.Enum):
    """Whether answers wait for the copies."""

    SYNCHRONOUS = "synchronous"
    ASYNCHRONOUS = "asynchronous"
    """They do not. The loss of the primary's machine loses what its copies lack, and none of them
    takes over by itself."""


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a broker group.

    Attributes:
        failover: What happens when the primary is gone.
        copy: Whether answers wait for the copies.
        read_only_behind_us: New messages are refused while every copy is further behind than this;
            0: never.
        lease_us: How long after the last word of the primary a member may take over. The primary
            asks for it, and relies only on what a member has promised.
        copies: Number of copies, the primary's included, that must be recorded for new messages to
            be taken and answered. 1: the primary goes on alone.
        silent_us: How long after its last word a member is taken out of the members.
        kept: Fields of later versions, packed, by name.
    """

    failover: Failover = Failover.AUTOMATIC
    copy: Copying = Copying.SYNCHRONOUS
    read_only_behind_us: int = 0
    lease_us: int = 3_000_000
    silent_us: int = 2_000_000
    copies: int = 1
    kept: Mapping[str, bytes] = {}


def problem_of(settings: GroupSettings) -> str:
    """Return why settings contradict each other, in one line for people; empty if they do not."""
    lease_us, silent_us = settings.lease_us, settings.silent_us
    if not LEAST_LEASE_US <= lease_us <= MOST_LEASE_US:
        return (
            f"lease cannot be {write_duration(lease_us)}: it is at least "
            f"{write_duration(LEAST_LEASE_US)} and at most {write_duration(MOST_LEASE_US)}"
        )
    most_us = lease_us * _MOST_SILENT[0] // _MOST_SILENT[1]
    if not LEAST_SILENT_US <= silent_us <= most_us:
        return (
            f"silent cannot be {write_duration(silent_us)}: with a lease of "
            f"{write_duration(lease_us)} it is at least {write_duration(LEAST_SILENT_US)} and at "
            f"most {write_duration(most_us)}"
        )
    if not 1 <= settings.copies <= MAX_MEMBERS:
        return f"copies cannot be {settings.copies}: it is at least 1 and at most {MAX_MEMBERS}"
    if settings.copies > 1 and settings.copy is Copying.ASYNCHRONOUS:
        return (
            f"copies cannot be {settings.copies} with copy=asynchronous: no follower counts there"
        )
    return ""


class Change(enum.Enum):
    """What an order asks for."""

    SWITCH = "switch"
    """The primary hands over to a member, in order."""
    PROMOTE = "promote"
    """A member that misses the primary stands, whatever the setting ``failover`` says. With
    ``Order.accepted`` a broker that is no member does, too."""


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An operator's order.

    Attributes:
        change: What is to be done.
        broker: The broker that is to lead.
        epoch: The epoch that it ends; the order is void in any other.
        at_us: When it was given, by the operator's clock, for people.
        accepted: The operator accepts that what follows this position is lost, which is how far the
            broker's copy reached when it was asked for; None: nothing may be lost. It is left out
            of the bytes then, so that older brokers understand such an order, and only such a one.
    """

    format: Annotated[int, Meta(ge=FORMAT, le=FORMAT)] = FORMAT
    change: Change
    broker: Annotated[str, Meta(min_length=1, max_length=127)]
    epoch: Epoch
    at_us: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    accepted: Annotated[Position, Meta(ge=0)] | None = None


class _Form(msgspec.Struct, frozen=True, kw_only=True):
    format: Annotated[int, Meta(ge=FORMAT, le=FORMAT)]
    failover: Failover = Failover.AUTOMATIC
    copy: Copying = Copying.SYNCHRONOUS
    read_only_behind_us: Annotated[int, Meta(ge=0, le=_DAY_US)] = 0
    lease_us: int = 3_000_000
    silent_us: int = 2_000_000
    copies: int = 1


_KNOWN: Final = frozenset(_Form.__struct_fields__)
_decode_form: Final = msgspec.msgpack.Decoder(_Form).decode
_decode_map: Final = msgspec.msgpack.Decoder(dict[str, Raw]).decode
_decode_order: Final = msgspec.msgpack.Decoder(Order).decode
_encode: Final = msgspec.msgpack.encode


def settings_key(group: str) -> str:
    """Return the key of a broker group's settings."""
    return f"settings/{check_name(group, 'the name of a broker group')}"


def order_key(group: str) -> str:
    """Return the key of the newest order to a broker group."""
    return f"order/{check_name(group, 'the name of a broker group')}"


def pack_settings(settings: GroupSettings) -> bytes:
    """Return the bytes of a broker group's settings.

    Raises:
        BadRecord: ``unpack_settings`` would refuse them.
    """
    fields: dict[str, Any] = {name: Raw(value) for name, value in settings.kept.items()}
    fields["format"] = FORMAT
    for name in settings.__struct_fields__:
        if name != "kept":
            fields[name] = getattr(settings, name)
    value = _encode(fields)
    unpack_settings(value)
    return value


def unpack_settings(value: bytes) -> GroupSettings:
    """Return the settings of their bytes.

    Raises:
        BadRecord: They are not settings of a broker group.
    """
    if len(value) > MAX_BYTES:
        raise BadRecord(f"settings of a broker group of {len(value):,} bytes")
    try:
        form = _decode_form(value)
        kept = {key: bytes(raw) for key, raw in _decode_map(value).items() if key not in _KNOWN}
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadRecord(f"not the settings of a broker group: {error}") from error
    settings = GroupSettings(
        failover=form.failover,
        copy=form.copy,
        read_only_behind_us=form.read_only_behind_us,
        lease_us=form.lease_us,
        silent_us=form.silent_us,
        copies=form.copies,
        kept=kept,
    )
    if problem := problem_of(settings):
        raise BadRecord(f"not the settings of a broker group: {problem}")
    return settings


def pack_order(order: Order) -> bytes:
    """Return the bytes of an order.

    Raises:
        BadRecord: ``unpack_order`` would refuse them.
    """
    fields = msgspec.to_builtins(order)
    if order.accepted is None:
        del fields["accepted"]
    value = _encode(fields)
    unpack_order(value)
    return value


def unpack_order(value: bytes) -> Order:
    """Return the order of its bytes.

    Raises:
        BadRecord: They are not an order.
    """
    if len(value) > MAX_BYTES:
        raise BadRecord(f"an order of {len(value):,} bytes")
    try:
        order: Order = _decode_order(value)
        check_name(order.broker, "a broker")
    except (msgspec.MsgspecError, ValueError, RecursionError, InvalidName) as error:
        raise BadRecord(f"not an order: {error}") from error
    if not 0 <= order.epoch < 2**32:
        raise BadRecord(f"an order about epoch {order.epoch}")
    if order.accepted is not None and order.change is not Change.PROMOTE:
        raise BadRecord(f"an order that accepts a loss, to {order.change.value}")
    return order
