"""The fields of the settings: their keys, how each is read from text or TOML, and its text form."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec

from ternmq.model import units
from ternmq.model.secret import HIDDEN, Secret
from ternmq.model.specs import Limits
from ternmq.model.units import Address
from ternmq.settings.settings import About, Settings

LIMITS: Final = "limits"
_OFF: Final = "off"
_LIMIT_ABOUT: Final = {
    "apps": "Number of apps.",
    "topics": "Number of topics.",
    "groups": "Groups of one topic.",
    "group_queues": "Number of groups of one topic, multiplied by the number of its queues.",
    "holds": "Holds on the journal.",
    "instances": "Broadcast instances of all topics.",
    "instance_kept_us": "How long the place of a broadcast instance with a name is kept after its "
    "client left.",
    "gone_names": "Names of deleted topics, deleted groups and ended sessions that are kept.",
    "sessions": (
        "Sessions of clients: of connected ones, and of those within their grace (see below)."
    ),
    "session_grace_us": (
        "Grace: how long the broker keeps a session, with its leases, after its connection is lost."
    ),
    "producers": "Producers that deduplication remembers.",
    "producer_idle_us": "Deduplication forgets a producer that sends nothing for this time.",
    "dedup_window_us": (
        "How long deduplication remembers an id; at least twice `limits.send_timeout`."
    ),
    "dedup_batches": "Batches that deduplication remembers; each id given by an application counts "
    "as one.",
    "send_timeout_us": (
        "Maximum time for which a client should try to send a message. The broker remembers each "
        "batch for at least twice this time, even if `limits.dedup_batches` is reached. A client "
        "with a longer `timeout` is not refused, but the broker may then have forgotten the batch."
    ),
    "intervals": (
        "Separate ranges of offsets, of one group and queue, whose messages are leased, ready, or "
        "done before earlier messages."
    ),
    "parked": (
        "Messages of one group and queue that wait behind another message of their ordering key."
    ),
    "replay_rows": "Messages of one queue that wait for redelivery to a group because of a replay.",
    "replay_keyed_rows": "Messages of one queue that wait for redelivery to an ordered group "
    "because of a replay.",
    "failures": "Messages of one group and queue that wait for a retry, or are dead letters.",
    "dead_letter_us": "How long dead letters are kept.",
    "transactions": "Undecided named transactions.",
    "transaction_batches": "Prepared batches of one transaction.",
    "prepared_batches": "Prepared batches of all undecided transactions together.",
    "prepared_bytes": "Bytes in the journal of the prepared batches of all undecided transactions.",
    "transaction_us": "An undecided named transaction is rolled back this long after its first "
    "prepared batch.",
    "open_transactions": (
        "Undecided transactions with check-back, parked ones included. The last tenth is for apps "
        "that have less than their fair share."
    ),
    "transaction_settles": (
        "Ranges of messages that one transaction may settle. Each `commit_offset` counts as 1. "
        "Each message that is retried or rejected counts as 3, and each call that retries or "
        "rejects messages counts as 7 more, because the commit then takes longer."
    ),
    "prepared_settles": "Ranges of messages that all undecided transactions together may settle, "
    "counted as for `limits.transaction_settles`.",
    "transaction_due_rows": "Messages with due times in one transaction.",
    "producer_groups": "Producer groups. The last tenth is for apps that have less than their fair "
    "share.",
    "writers": "Writers of named transactions.",
    "writer_idle_us": "A writer that does nothing for this time is forgotten, with its decisions.",
    "decisions": "Decided transactions that are remembered for each writer.",
    "decision_us": (
        "A decision is forgotten when the newest decision of its writer is this much newer. "
        "The commit with the highest batch id is always remembered."
    ),
    "scheduled_rows": "Scheduled messages that are not due yet.",
    "pull_messages": "Messages in one pull.",
    "pull_bytes": "Bytes of one pull.",
    "waiters": "Pulls and reads that wait for messages.",
    "batch_bytes": "Bytes of one batch of messages.",
    "filter_scan_rows": "Messages that a filter examines in one step.",
    "filter_cursor_us": (
        "Interval at which the position of a group is recorded while its filter matches no message."
    ),
}


@dataclass(slots=True, frozen=True)
class Field:
    """One setting."""

    name: str
    """Name of the struct's field."""
    key: str
    kind: Any
    default: object
    about: About
    optional: bool

    @property
    def variable(self) -> str:
        """The environment variable."""
        return "TERNMQ_" + self.key.replace(".", "_").upper()

    @property
    def unit(self) -> str:
        """The field's form, for the reference."""
        if self.name.endswith("_us"):
            return "duration"
        if self.name.endswith("_bytes"):
            return "size"
        if isinstance(self.kind, type) and issubclass(self.kind, enum.Enum):
            return " or ".join([f"`{one.value}`" for one in self.kind])
        return _KINDS[self.kind]

    def read(self, value: object) -> object:
        """Return the setting's value for a text, or for a value of TOML or of a program.

        Raises:
            ValueError: it does not have the field's form, or is out of its bounds.
        """
        if self.optional and value in (_OFF, None):
            return None
        found = self._read(value)
        about = self.about
        if isinstance(found, int | float) and (
            (about.least is not None and not found >= about.least)  # so that NaN fails, too
            or (about.most is not None and not found <= about.most)
        ):
            raise ValueError(f"must be {self.bounds}")
        return found

    def _read(self, value: object) -> object:
        if self.kind is not bool and isinstance(value, bool):
            raise ValueError(f"is not {_ARTICLES.get(self.kind, 'one of ' + self.unit)}")
        if isinstance(value, str):
            return self._read_text(value)
        if self.kind is float and isinstance(value, int):
            return float(value)
        with_unit = self.name.endswith(("_us", "_bytes"))
        if isinstance(value, self.kind) and not (with_unit and value):
            return value
        if with_unit:
            wanted = units.write_duration if self.name.endswith("_us") else units.write_size
            raise ValueError(f'needs a unit, such as "{wanted(_int(self.default))}"')
        raise ValueError(f"is not {_ARTICLES.get(self.kind, 'one of ' + self.unit)}")

    def _read_text(self, text: str) -> object:
        if self.name.endswith("_us"):
            return units.read_duration(text)
        if self.name.endswith("_bytes"):
            return units.read_size(text)
        if issubclass(self.kind, enum.Enum):
            try:
                return self.kind(text)
            except ValueError:
                raise ValueError(f"is not {self.unit}") from None
        return _READERS[self.kind](text)

    def write(self, value: object) -> str:
        """Return a value as users write it; secrets as ``***``."""
        if value is None:
            return _OFF
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, Secret):
            return HIDDEN
        if self.name.endswith("_us"):
            return units.write_duration(_int(value))
        if self.name.endswith("_bytes"):
            return units.write_size(_int(value))
        return str(value.value if isinstance(value, enum.Enum) else value)

    @property
    def bounds(self) -> str:
        """The bounds as text; empty if there are none."""
        least, most = self.about.least, self.about.most
        if least is None and most is None:
            return ""
        low, high = self._bound(least), self._bound(most)
        if most is None:
            return f"{low} or more"
        return f"at most {high}" if least is None else f"{low} to {high}"

    def _bound(self, value: float | None) -> str:
        if value is None:
            return ""
        return (
            self.write(value)
            if self.kind is float or value != int(value)
            else self.write(int(value))
        )


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _read_int(text: str) -> int:
    if not text.isascii() or not text.removeprefix("-").isdigit():
        raise ValueError("is not a whole number")
    return int(text)


def _read_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("is not a number") from None


def _read_line(text: str) -> str:
    if not text:
        raise ValueError("is empty")
    if not text.isprintable():
        raise ValueError("has characters that cannot be printed")
    return text


def _read_secret(text: str) -> Secret:
    """Read a token; clients ignore white space around theirs, so a token has none there."""
    if text != text.strip():
        raise ValueError("begins or ends with white space")
    return Secret(_read_line(text))


_READERS: Final[dict[Any, Callable[[str], object]]] = {
    str: _read_line,
    bool: units.read_bool,
    int: _read_int,
    float: _read_float,
    Address: units.read_address,
    Secret: _read_secret,
}
_KINDS: Final[dict[Any, str]] = {
    str: "text",
    bool: "`true` or `false`",
    int: "number",
    float: "number",
    Address: "`HOST:PORT`",
    Secret: "text",
}
_ARTICLES: Final[dict[Any, str]] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    Address: "HOST:PORT",
    Secret: "text",
}


def key_of(name: str) -> str:
    """Return the key that users write for a field."""
    return name.removesuffix("_us").removesuffix("_bytes")


def _fields(struct: type[msgspec.Struct], prefix: str) -> list[Field]:
    hints = get_type_hints(struct, include_extras=True)
    found: list[Field] = []
    for one in msgspec.structs.fields(struct):
        hint = hints[one.name]
        if get_origin(hint) is Annotated:
            kind, about = get_args(hint)
        elif prefix:
            kind, about = hint, About(_LIMIT_ABOUT[one.name], 1)
        else:
            continue  # ``mode``, ``forgets`` and ``limits`` are not settings themselves
        some = [part for part in get_args(kind) if part is not type(None)]
        optional = bool(some)
        kind = some[0] if some else kind
        found.append(Field(one.name, prefix + key_of(one.name), kind, one.default, about, optional))
    return found


FIELDS: Final = {one.key: one for one in _fields(Settings, "")}
LIMIT_FIELDS: Final = {one.key: one for one in _fields(Limits, LIMITS + ".")}
ALL_FIELDS: Final = {**FIELDS, **LIMIT_FIELDS}
