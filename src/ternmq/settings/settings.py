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

from ternmq.broker.clock.clock import START_JUMP_US
from ternmq.journal.log.retention import DEFAULT_WATERMARK, RetentionSpec
from ternmq.journal.state.sets import DEFAULT_INTERVAL_BYTES
from ternmq.model.secret import Secret
from ternmq.model.specs import Durability, Limits, TopicSpec
from ternmq.model.types import DAY_US, HOUR_US, MINUTE_US, SECOND_US
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


class Follower(enum.Enum):
    """What a broker of a broker group is while it follows the primary."""

    MEMBER = "member"
    SYNCED = "synced"
    BACKUP = "backup"


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
        str, About("Name of the broker, for clients and logs; the rules for topic names apply.")
    ] = "ternmq"
    data: Annotated[
        str, About("The data folder. Required for `serve`; `dev` makes a temporary one by default.")
    ] = ""
    listen: Annotated[
        Address,
        About("Address for clients; `:7117` is every interface, port 0 is a free port."),
    ] = Address(LOOPBACK, PORT)
    http: Annotated[
        Address | None,
        About(
            "Loopback address at which the broker serves /livez, /readyz and /metrics; `off`: "
            "the broker has no HTTP port."
        ),
    ] = Address(LOOPBACK, PORT + 1)
    metrics_groups: Annotated[
        int,
        About(
            "Number of groups with series of their own in /metrics (the oldest groups); the gauge"
            " `ternmq_groups_left_out` counts the others.",
            0,
        ),
    ] = 2_000

    auth: Annotated[
        bool,
        About(
            "Clients must authenticate as apps, with a token. This can be `false` only in `dev`"
            " on loopback, and in the testing kit; on other addresses `dev` needs `admin_token`."
        ),
    ] = True
    admin_token: Annotated[
        Secret | None,
        About(
            "Token of the app `admin`. If this app is missing at a start, or has another token, "
            "the broker creates it again with this token and every right. `off`: if there is no "
            "app yet, the broker creates `admin` with a new token, and writes the token to "
            "`admin.token` in the data folder."
        ),
    ] = None
    tls_cert: Annotated[
        str | None, About("PEM file of the server certificate and its chain; `off`: no TLS.")
    ] = None
    tls_key: Annotated[str | None, About("PEM file of the certificate's key.")] = None

    cluster: Annotated[
        Secret | None,
        About(
            "URL of the coordinator of the cluster: `sqlite:////PATH/FILE`, `postgresql://...`,"
            " `mysql://...` or `zk://HOST:PORT,.../PATH`. It may contain a password. `off`: the"
            " broker is alone."
        ),
    ] = None
    cluster_token: Annotated[
        Secret | None,
        About("Secret by which the brokers of a cluster know each other, the same for all."),
    ] = None
    broker_group: Annotated[
        str,
        About("Broker group of this broker: the brokers that have the same messages."),
    ] = "main"
    follower: Annotated[
        Follower,
        About(
            "What this broker is while it follows. `member`: answers of the primary wait until the"
            " message is in the journal file of this broker; after a restart, this broker is a"
            " member again once it has caught up. `synced`: answers wait until the message is"
            " synced to the disk of this broker, which stays a member over restarts. `backup`: no"
            " answer waits for this broker, and it never leads."
        ),
    ] = Follower.MEMBER
    compress_stream: Annotated[
        bool,
        About(
            "While this broker is a follower of kind `backup`, the primary compresses what it sends"
            " to it (zstd), for a slow network. Costs time of the CPU at both brokers."
        ),
    ] = False
    cluster_ca: Annotated[
        str | None,
        About(
            "PEM file of the certificates to trust when this broker connects to others over TLS;"
            " `off`: those of the system."
        ),
    ] = None
    advertise: Annotated[
        Address | None,
        About(
            "Address at which clients and the other brokers reach this broker; `off`: the address"
            " of `listen`."
        ),
    ] = None

    create_topics: Annotated[
        bool,
        About(
            "If a topic does not exist, the first send to it, or the first consumer that joins a"
            " group of it, creates the topic with the settings below."
        ),
    ] = False
    topic_queues: Annotated[int, About("Number of queues of such a topic.", 1, 4096)] = 1
    topic_durability: Annotated[
        Durability, About("Durability of such a topic; it decides when a send is answered.")
    ] = Durability.NORMAL
    topic_retention_us: Annotated[
        int, About("How long such a topic keeps messages.", 1, 36_525 * DAY_US)
    ] = 7 * DAY_US

    segment_bytes: Annotated[
        int,
        About(
            "Size of a journal file, at least 2MiB more than `body`; fixed when the data folder"
            " is created. `0`: 1 % of the disk, but at most a twentieth of its free space, and"
            " between 16MiB and 256MiB. A new folder takes two to five times this size.",
            0,
            4 * GIB,
        ),
    ] = 0
    reserve_bytes: Annotated[
        int,
        About(
            "Disk space that the broker reserves at its start, as empty files, for acks and other"
            " settles, and for its own records; `0`: 16 MiB or 4 % of the disk, whichever is more,"
            " but at most four segments. With a new data folder, the broker does not start if the"
            " reserve does not fit into the free space, or leaves no space below"
            " `retention_watermark`; with an existing one, if the reserve is larger than the disk.",
            0,
        ),
    ] = 0
    state_bytes: Annotated[
        int,
        About(
            "After this many bytes of journal, the broker writes its state again; a lower value "
            "makes starts quicker.",
            MIB,
        ),
    ] = DEFAULT_INTERVAL_BYTES
    retention_max_bytes: Annotated[
        int,
        About(
            "Maximum size of the whole journal. It is checked once a second, so it can be exceeded"
            " in between; `0`: limited by `retention_watermark` alone.",
            0,
        ),
    ] = 0
    retention_watermark: Annotated[
        float,
        About(
            "Share of the disk. If more of it is in use, old files of the journal are removed "
            "before the retention of their topics ends.",
            0.05,
            1,
        ),
    ] = DEFAULT_WATERMARK
    scrub_us: Annotated[
        int,
        About(
            "How long the broker takes to read all closed files of the journal again, to find"
            " damaged bytes. Then it begins anew. `0`: never; damage is found only when its bytes"
            " are needed.",
            0,
            36_525 * DAY_US,
        ),
    ] = 7 * DAY_US
    start_jump_us: Annotated[
        int,
        About(
            "How far the clock of the machine may be ahead of the last record in the journal when "
            "the broker starts. If it is further ahead, broker time continues from the last "
            "record, until an operator runs `ternmq clock accept`.",
            MINUTE_US,
            36_525 * DAY_US,
        ),
    ] = START_JUMP_US

    memory_bytes: Annotated[
        int,
        About(
            "Memory for requests that have no answer yet, of all apps together, at least `body`."
            " The same amount is allowed for answers that clients have not read, and for incomplete"
            " requests. When it is used up, only apps above their fair share wait. The fair share"
            " is this value divided by the number of apps that hold some of this memory.",
            MIB,
        ),
    ] = 64 * MIB
    connections: Annotated[int, About("Maximum number of connections.", 1)] = 10_000
    connections_per_ip: Annotated[
        int, About("Maximum number of connections from one address.", 1)
    ] = 1_024
    connections_per_app: Annotated[
        int,
        About(
            "Maximum number of connections of one app. The last eighth of `connections`, and of the"
            " file descriptors of the process, is reserved for apps with few connections.",
            1,
        ),
    ] = 1_000
    handshake_timeout_us: Annotated[
        int,
        About(
            "A connection on which no HELLO (the first frame of a client) arrives is closed after"
            " this time.",
            1000,
            HOUR_US,
        ),
    ] = 5 * SECOND_US
    heartbeat_us: Annotated[
        int,
        About("Interval at which idle clients send a PING; a connection that is silent for three"
              " intervals is closed.", 10_000, HOUR_US),
    ] = 15 * SECOND_US  # fmt: skip
    body_bytes: Annotated[
        int, About("Maximum size of a message body; a frame may be 1 MiB larger.", 1, 16 * MIB)
    ] = MIB
    send_buffer_bytes: Annotated[
        int,
        About("Bytes of answers that may wait for a client that does not read them. Above that, the"
              " broker reads no more requests of this client.", 64 * KIB),
    ] = 2 * MIB  # fmt: skip
    stall_timeout_us: Annotated[
        int,
        About(
            "A client that reads none of its waiting answers for this time is disconnected.",
            1000,
            HOUR_US,
        ),
    ] = 10 * SECOND_US
    requests_per_connection: Annotated[
        int,
        About(
            "Number of requests of one connection that may be without an answer. While there are"
            " this many, the broker reads no more requests of this connection.",
            1,
        ),
    ] = 1024
    sends_per_connection_bytes: Annotated[
        int,
        About(
            "Bytes of requests of one connection that may be without an answer. The last request "
            "may exceed this.",
            64 * KIB,
        ),
    ] = 16 * MIB
    drain_timeout_us: Annotated[
        int, About("How long a stopping broker waits for clients to finish.", 0, HOUR_US)
    ] = 10 * SECOND_US

    log_format: Annotated[
        LogFormat, About("`text`: lines for people; `json`: one JSON object per line.")
    ] = LogFormat.TEXT
    log_level: Annotated[
        str, About("Lowest level that is logged: `debug`, `info`, `warning` or `error`.")
    ] = "info"

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
            start_jump_us=self.start_jump_us,
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
    "auth": "Tokens and TLS",
    "cluster": "Copies on other machines",
    "create_topics": "Topics created at first use",
    "segment_bytes": "The journal",
    "memory_bytes": "Connections and memory",
    "log_format": "Logs",
}
"""First field of each section of the reference."""
LEVELS: Final = ("debug", "info", "warning", "error")
