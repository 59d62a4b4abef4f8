"""All settings of a broker.

A field's name ends in its unit (``_us``, ``_bytes``); its **key**, which users write, does not:
``heartbeat_us`` is ``heartbeat = "15s"`` in ``ternmq.toml``, ``TERNMQ_HEARTBEAT=15s`` in the
environment and ``--heartbeat 15s`` as a flag, where there is one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from ternmq.journal.retention import DEFAULT_WATERMARK, RetentionSpec
from ternmq.journal.state import DEFAULT_INTERVAL_BYTES
from ternmq.model.secret import Secret
from ternmq.model.specs import Durability, Limits, TopicSpec
from ternmq.model.types import DAY_US, HOUR_US, SECOND_US
from ternmq.model.units import Address

if TYPE_CHECKING:
    from ternmq.broker.start import Options

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
FILE: Final = "ternmq.toml"
"""The file that a broker reads in its current folder, if no other is named."""
PORT: Final = 7117
LOOPBACK: Final = "127.0.0.1"
FRAME_EXTRA_BYTES: Final = MIB
"""Bytes of a frame in addition to one body of the largest size."""
SEGMENT_EXTRA_BYTES: Final = 2 * MIB
"""Least bytes of a segment in addition to one body of the largest size."""


class Mode(enum.Enum):
    """The use that a broker is started for. It determines some defaults; it is no setting."""

    SERVE = "serve"
    DEV = "dev"
    """For trying things out, by default in a temporary folder: no tokens on loopback, topics made
    by use."""
    TESTING = "testing"
    """Inside the process of a test: like dev, with small files."""


class LogFormat(enum.Enum):
    """Format of log lines."""

    TEXT = "text"
    JSON = "json"


@dataclass(slots=True, frozen=True)
class About:
    """The text of a setting in the reference, and its bounds."""

    text: str
    least: float | None = None
    most: float | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a broker. Made by ``load``, which checks them."""

    mode: Mode = Mode.SERVE
    forgets: bool = False
    """The data folder is deleted when the broker ends: `dev` has made it for this one run."""

    name: Annotated[
        str, About("What the broker calls itself to clients and in logs: a name as topics have.")
    ] = "ternmq"
    data: Annotated[
        str, About("The data folder; `serve` needs one, `dev` takes a temporary one.")
    ] = ""
    listen: Annotated[
        Address,
        About("Where clients connect; `:7117` is every interface, port 0 takes a free one."),
    ] = Address(LOOPBACK, PORT)
    http: Annotated[
        Address | None,
        About("Where /metrics, /livez and /readyz are served, on loopback only; `off`: nowhere."),
    ] = Address(LOOPBACK, PORT + 1)
    metrics_groups: Annotated[
        int,
        About(
            "Groups with series of their own in /metrics, those made first; the gauge"
            " `ternmq_groups_left_out` says how many have none.",
            0,
        ),
    ] = 2_000

    auth: Annotated[
        bool,
        About(
            "Clients must be apps with a token. Off only in `dev`, on loopback; beyond, it is on"
            " and needs `admin_token`."
        ),
    ] = True
    admin_token: Annotated[
        Secret | None,
        About(
            "Token of the app `admin`, which is made, or made anew, at a start where it has"
            " another; `off`: when there is no app yet, one is made and its token written to"
            " `admin.token` in the data folder."
        ),
    ] = None
    tls_cert: Annotated[
        str | None, About("PEM file of the server's certificate and its chain; `off`: no TLS.")
    ] = None
    tls_key: Annotated[str | None, About("PEM file of the certificate's key.")] = None

    create_topics: Annotated[
        bool, About("A send to a topic that is not there makes it, with the settings below.")
    ] = False
    topic_queues: Annotated[int, About("Queues of a topic made by use.", 1, 4096)] = 1
    topic_durability: Annotated[
        Durability, About("Of a topic made by use: when a send is answered.")
    ] = Durability.NORMAL
    topic_retention_us: Annotated[
        int, About("Of a topic made by use: how long messages are kept.", 1, 36_525 * DAY_US)
    ] = 7 * DAY_US

    segment_bytes: Annotated[
        int,
        About(
            "Size of a journal file, 1MiB at least; fixed when the data folder is made. `0`: 1 % of"
            " the disk and a twentieth of what is free at most, from 16MiB to 256MiB. A new folder"
            " takes up to five times as much.",
            0,
            4 * GIB,
        ),
    ] = 0
    reserve_bytes: Annotated[
        int,
        About(
            "Disk space kept free for settles and the journal's own records; `0`: 16 MiB or 4 % of"
            " the disk, whichever is more, at most four segments. A start refuses what does not"
            " fit on the disk, and for a new folder what takes all up to `retention_watermark`.",
            0,
        ),
    ] = 0
    state_bytes: Annotated[
        int,
        About("A STATE set begins after so many bytes of journal; less makes starts quicker.", MIB),
    ] = DEFAULT_INTERVAL_BYTES
    retention_max_bytes: Annotated[
        int,
        About(
            "Most bytes of the whole journal, which is looked at each second: what comes in between"
            " may pass it; `0`: what the watermark allows.",
            0,
        ),
    ] = 0
    retention_watermark: Annotated[
        float,
        About("Share of the disk in use above which old segments go before their time.", 0.05, 1),
    ] = DEFAULT_WATERMARK

    memory_bytes: Annotated[
        int,
        About(
            "Bytes of requests without an answer, of all apps; as much again of answers that are"
            " not taken, and of requests that are not whole. Beyond, apps that hold more than"
            " their fair share (this, divided by the apps that hold something) wait, and no"
            " others. `body` at least.",
            MIB,
        ),
    ] = 64 * MIB
    connections: Annotated[int, About("Connections at one time.", 1)] = 10_000
    connections_per_ip: Annotated[int, About("Connections from one address.", 1)] = 1_024
    connections_per_app: Annotated[
        int,
        About(
            "Connections of one app. Of `connections`, and of the process's descriptors, the last"
            " eighth is for apps with few.",
            1,
        ),
    ] = 1_000
    handshake_timeout_us: Annotated[
        int, About("A connection that has not said HELLO by then is closed.", 1000, HOUR_US)
    ] = 5 * SECOND_US
    heartbeat_us: Annotated[
        int,
        About("How often an idle client says something; silent for three times as long: closed.",
              10_000, HOUR_US),
    ] = 15 * SECOND_US  # fmt: skip
    body_bytes: Annotated[
        int, About("Largest body of a message; a frame may be 1 MiB longer.", 1, 16 * MIB)
    ] = MIB
    send_buffer_bytes: Annotated[
        int,
        About("Answers waiting for a client that does not read; beyond, its requests are not"
              " read.", 64 * KIB),
    ] = 2 * MIB  # fmt: skip
    stall_timeout_us: Annotated[
        int,
        About("A client that takes nothing of its answers for so long is closed.", 1000, HOUR_US),
    ] = 10 * SECOND_US
    requests_per_connection: Annotated[
        int, About("Requests of a connection without an answer yet; then nothing is read.", 1)
    ] = 1024
    sends_per_connection_bytes: Annotated[
        int, About("Bytes of those requests; the last may go beyond.", 64 * KIB)
    ] = 16 * MIB
    drain_timeout_us: Annotated[
        int, About("How long a broker that stops waits for clients to finish.", 0, HOUR_US)
    ] = 10 * SECOND_US

    log_format: Annotated[LogFormat, About("Lines for people, or one JSON object a line.")] = (
        LogFormat.TEXT
    )
    log_level: Annotated[str, About("`debug`, `info`, `warning` or `error`, and above.")] = "info"

    limits: Limits = Limits()

    @property
    def frame_bytes(self) -> int:
        """Largest frame after the handshake."""
        return self.body_bytes + FRAME_EXTRA_BYTES

    def options(self) -> Options:
        """Return the options of the core."""
        # Imported here, since the command line needs units and defaults, but no broker.
        from ternmq.broker.start import Options

        return Options(
            limits=self.limits,
            segment_bytes=self.segment_bytes,
            least_segment_bytes=self.body_bytes + SEGMENT_EXTRA_BYTES,
            reserve_bytes=self.reserve_bytes or None,
            state_bytes=self.state_bytes,
            retention=RetentionSpec(
                max_bytes=self.retention_max_bytes, watermark=self.retention_watermark
            ),
        )

    def topic_spec(self, name: str) -> TopicSpec:
        """Return the spec of a topic that is made by use."""
        return TopicSpec(
            name=name,
            queues=self.topic_queues,
            durability=self.topic_durability,
            retention_us=self.topic_retention_us,
        )


DEFAULTS: Final[dict[Mode, dict[str, object]]] = {
    Mode.SERVE: {},
    Mode.DEV: {
        "auth": False,
        "create_topics": True,
        "segment_bytes": 16 * MIB,
        # A developer's disk may be nearly full of other files: that is no reason to refuse sends.
        "retention_watermark": 0.98,
    },
    Mode.TESTING: {
        "auth": False,
        "create_topics": True,
        "segment_bytes": 4 * MIB,
        "listen": Address(LOOPBACK, 0),
        "http": None,
    },
}
"""Defaults of each mode that differ from those above."""

SECTIONS: Final = {
    "name": "The broker",
    "auth": "Who may come in",
    "create_topics": "Topics made by use",
    "segment_bytes": "The journal",
    "memory_bytes": "Connections and memory",
    "log_format": "Logs",
}
"""First field of each section of the reference."""
LEVELS: Final = ("debug", "info", "warning", "error")
