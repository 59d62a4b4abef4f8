"""The tables in an application's database.

A change of a table is a new ``VERSION`` of its component, with the statements that lead from the
version before in ``_UPGRADES``, and a new golden file ``tests/golden/reliable/VERSION-*.sql``.
``prepare`` runs them; a library of another version refuses to work with the table.

    outbox   ternmq_outbox: a row for each message that is not stored at the broker
             ternmq_lease: which process does which job
    inbox    ternmq_inbox: a row for each message that was handled, until ``until_ms``
    sequence ternmq_sequence: a row for each orderly session that a consumer has
             ternmq_sequence_item: a row for each of its items
    schema   ternmq_schema: the version of each component; the names of an inbox's shards

States of a row of ``ternmq_outbox``: 0 sending, 1 held (its ordering key or topic is blocked),
2 failed (an operator decides), 3 sent (kept for a while). Those of ``ternmq_sequence`` are in
``ternmq.reliable.steps.course``.
"""

from __future__ import annotations

import enum
import re
from typing import Final

from ternmq.reliable.database.dialect import MYSQL, POSTGRESQL, SQLITE, Dialect, Name

VERSIONS: Final = {"outbox": 1, "inbox": 1, "sequence": 1}
"""Version of each component's tables."""
_UPGRADES: Final[dict[tuple[str, int], dict[Name, tuple[str, ...]]]] = {}
"""Component and old version -> statements that lead to the next one."""


class State(enum.IntEnum):
    """State of a row of the outbox."""

    SENDING = 0
    HELD = 1
    FAILED = 2
    SENT = 3


_POSTGRESQL: Final = (
    """CREATE TABLE IF NOT EXISTS {schema} (
    component text PRIMARY KEY,
    version   integer NOT NULL
)""",
    """CREATE TABLE IF NOT EXISTS {outbox} (
    seq          bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state        smallint NOT NULL DEFAULT 0,
    by_writer    smallint NOT NULL,
    tries        integer  NOT NULL DEFAULT 0,
    written_ms   bigint   NOT NULL DEFAULT {now_ms},
    next_ms      bigint   NOT NULL DEFAULT 0,
    id           bytea    NOT NULL,
    topic        text     NOT NULL,
    queue        integer,
    message_key  text     NOT NULL,
    ordering_key text     NOT NULL,
    tag          text     NOT NULL,
    content_type text     NOT NULL,
    headers      bytea,
    priority     smallint NOT NULL,
    due_ms       bigint,
    expires_ms   bigint,
    items        integer  NOT NULL DEFAULT 1,
    error        text,
    body         bytea    NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
)""",
    "ALTER TABLE {outbox} ALTER COLUMN body SET STORAGE EXTERNAL",
    "CREATE INDEX IF NOT EXISTS ternmq_outbox_state ON {outbox} (state, seq)",
    """CREATE TABLE IF NOT EXISTS {lease} (
    name     text PRIMARY KEY,
    epoch    bigint NOT NULL DEFAULT 0,
    holder   text   NOT NULL DEFAULT '',
    until_ms bigint NOT NULL DEFAULT 0,
    tick     bigint NOT NULL DEFAULT -1
)""",
    """CREATE TABLE IF NOT EXISTS {inbox} (
    consumer text   NOT NULL,
    id       bytea  NOT NULL,
    until_ms bigint NOT NULL,
    result   bytea,
    PRIMARY KEY (consumer, id)
)""",
    "CREATE INDEX IF NOT EXISTS ternmq_inbox_until ON {inbox} (until_ms)",
    """CREATE TABLE IF NOT EXISTS {sequence} (
    consumer text     NOT NULL,
    session  bytea    NOT NULL,
    size     integer  NOT NULL,
    state    smallint NOT NULL,
    stored   integer  NOT NULL,
    step     integer  NOT NULL,
    tries    integer  NOT NULL,
    turn     bigint   NOT NULL,
    since_ms bigint   NOT NULL,
    next_ms  bigint   NOT NULL,
    error    text,
    PRIMARY KEY (consumer, session)
)""",
    "CREATE INDEX IF NOT EXISTS ternmq_sequence_state ON {sequence} (state, next_ms)",
    """CREATE TABLE IF NOT EXISTS {sequence_item} (
    consumer     text    NOT NULL,
    session      bytea   NOT NULL,
    number       integer NOT NULL,
    id           bytea   NOT NULL,
    message_key  text    NOT NULL,
    tag          text    NOT NULL,
    content_type text    NOT NULL,
    headers      bytea,
    body         bytea   NOT NULL,
    PRIMARY KEY (consumer, session, number)
)""",
)
_MYSQL: Final = (
    """CREATE TABLE IF NOT EXISTS {schema} (
    component varbinary(64) NOT NULL PRIMARY KEY,
    version   integer NOT NULL
) ENGINE=InnoDB""",
    """CREATE TABLE IF NOT EXISTS {outbox} (
    seq          bigint          NOT NULL AUTO_INCREMENT PRIMARY KEY,
    state        tinyint         NOT NULL DEFAULT 0,
    by_writer    tinyint         NOT NULL,
    tries        integer         NOT NULL DEFAULT 0,
    written_ms   bigint          NOT NULL,
    next_ms      bigint          NOT NULL DEFAULT 0,
    id           varbinary(128)  NOT NULL,
    topic        varbinary(255)  NOT NULL,
    queue        integer,
    message_key  varbinary(4096) NOT NULL,
    ordering_key varbinary(4096) NOT NULL,
    tag          varbinary(4096) NOT NULL,
    content_type varbinary(4096) NOT NULL,
    headers      mediumblob,
    priority     tinyint         NOT NULL,
    due_ms       bigint,
    expires_ms   bigint,
    items        integer         NOT NULL DEFAULT 1,
    error        text CHARACTER SET utf8mb4,
    body         longblob        NOT NULL,
    KEY ternmq_outbox_state (state, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC""",
    """CREATE TABLE IF NOT EXISTS {lease} (
    name     varbinary(255) NOT NULL PRIMARY KEY,
    epoch    bigint         NOT NULL DEFAULT 0,
    holder   varbinary(255) NOT NULL DEFAULT '',
    until_ms bigint         NOT NULL DEFAULT 0,
    tick     bigint         NOT NULL DEFAULT -1
) ENGINE=InnoDB""",
    """CREATE TABLE IF NOT EXISTS {inbox} (
    consumer varbinary(512) NOT NULL,
    id       varbinary(128) NOT NULL,
    until_ms bigint         NOT NULL,
    result   mediumblob,
    PRIMARY KEY (consumer, id),
    KEY ternmq_inbox_until (until_ms)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC""",
    """CREATE TABLE IF NOT EXISTS {sequence} (
    consumer varbinary(512) NOT NULL,
    session  varbinary(128) NOT NULL,
    size     integer        NOT NULL,
    state    tinyint        NOT NULL,
    stored   integer        NOT NULL,
    step     integer        NOT NULL,
    tries    integer        NOT NULL,
    turn     bigint         NOT NULL,
    since_ms bigint         NOT NULL,
    next_ms  bigint         NOT NULL,
    error    text CHARACTER SET utf8mb4,
    PRIMARY KEY (consumer, session),
    KEY ternmq_sequence_state (state, next_ms)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC""",
    """CREATE TABLE IF NOT EXISTS {sequence_item} (
    consumer     varbinary(512)  NOT NULL,
    session      varbinary(128)  NOT NULL,
    number       integer         NOT NULL,
    id           varbinary(128)  NOT NULL,
    message_key  varbinary(4096) NOT NULL,
    tag          varbinary(4096) NOT NULL,
    content_type varbinary(4096) NOT NULL,
    headers      mediumblob,
    body         longblob        NOT NULL,
    PRIMARY KEY (consumer, session, number)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC""",
)
_SQLITE: Final = (
    """CREATE TABLE IF NOT EXISTS {schema} (
    component text PRIMARY KEY,
    version   integer NOT NULL
) WITHOUT ROWID""",
    # Without AUTOINCREMENT numbers are given again once the table is empty.
    """CREATE TABLE IF NOT EXISTS {outbox} (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    state        integer NOT NULL DEFAULT 0,
    by_writer    integer NOT NULL,
    tries        integer NOT NULL DEFAULT 0,
    written_ms   integer NOT NULL DEFAULT ({now_ms}),
    next_ms      integer NOT NULL DEFAULT 0,
    id           blob    NOT NULL,
    topic        text    NOT NULL,
    queue        integer,
    message_key  text    NOT NULL,
    ordering_key text    NOT NULL,
    tag          text    NOT NULL,
    content_type text    NOT NULL,
    headers      blob,
    priority     integer NOT NULL,
    due_ms       integer,
    expires_ms   integer,
    items        integer NOT NULL DEFAULT 1,
    error        text,
    body         blob    NOT NULL
)""",
    "CREATE INDEX IF NOT EXISTS ternmq_outbox_state ON {outbox} (state)",
    """CREATE TABLE IF NOT EXISTS {lease} (
    name     text PRIMARY KEY,
    epoch    integer NOT NULL DEFAULT 0,
    holder   text    NOT NULL DEFAULT '',
    until_ms integer NOT NULL DEFAULT 0,
    tick     integer NOT NULL DEFAULT -1
) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS {inbox} (
    consumer text    NOT NULL,
    id       blob    NOT NULL,
    until_ms integer NOT NULL,
    result   blob,
    PRIMARY KEY (consumer, id)
) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS ternmq_inbox_until ON {inbox} (until_ms)",
    """CREATE TABLE IF NOT EXISTS {sequence} (
    consumer text    NOT NULL,
    session  blob    NOT NULL,
    size     integer NOT NULL,
    state    integer NOT NULL,
    stored   integer NOT NULL,
    step     integer NOT NULL,
    tries    integer NOT NULL,
    turn     integer NOT NULL,
    since_ms integer NOT NULL,
    next_ms  integer NOT NULL,
    error    text,
    PRIMARY KEY (consumer, session)
) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS ternmq_sequence_state ON {sequence} (state, next_ms)",
    """CREATE TABLE IF NOT EXISTS {sequence_item} (
    consumer     text    NOT NULL,
    session      blob    NOT NULL,
    number       integer NOT NULL,
    id           blob    NOT NULL,
    message_key  text    NOT NULL,
    tag          text    NOT NULL,
    content_type text    NOT NULL,
    headers      blob,
    body         blob    NOT NULL,
    PRIMARY KEY (consumer, session, number)
)""",
)
_ALL: Final[dict[Name, tuple[Dialect, tuple[str, ...]]]] = {
    "postgresql": (POSTGRESQL, _POSTGRESQL),
    "mysql": (MYSQL, _MYSQL),
    "sqlite": (SQLITE, _SQLITE),
}
TABLES: Final = ("schema", "outbox", "lease", "inbox", "sequence", "sequence_item")
"""Names of the tables, without ``ternmq_``."""


_MAKES: Final = re.compile(r"CREATE TABLE IF NOT EXISTS \{(\w+)\}")
_COLUMN: Final = re.compile(r"^    ([a-z_]+) +[a-zA-Z]", re.MULTILINE)


def columns(name: Name = "sqlite") -> dict[str, tuple[str, ...]]:
    """Return the columns of each table, by the statements that make them.

    They are the same in each kind of database.
    """
    _, made = _ALL[name]
    found = [(makes[1], one) for one in made if (makes := _MAKES.match(one)) is not None]
    return {table: tuple(_COLUMN.findall(one)) for table, one in found}


def filled(dialect: Dialect, statement: str, schema: str = "") -> str:
    """Return a statement with the names of the tables, and the database's clock, in it."""
    names = {name: dialect.table(name, schema) for name in TABLES}
    return statement.format(now_ms=dialect.now_ms, **names)


def statements(dialect: Dialect, schema: str = "") -> list[str]:
    """Return the statements that make all tables; they may be repeated."""
    _, made = _ALL[dialect.name]
    return [filled(dialect, one, schema) for one in made]


def migration(dialect: Dialect, schema: str = "") -> list[str]:
    """Return the statements that make all tables and note their versions, each once."""
    noted = [
        filled(
            dialect,
            f"INSERT INTO {{schema}} (component, version) VALUES ('{name}', {version})",
            schema,
        )
        for name, version in VERSIONS.items()
    ]
    return [*statements(dialect, schema), *noted]


def upgrades(dialect: Dialect, component: str, version: int, schema: str = "") -> list[str]:
    """Return the statements that lead a component from a version to the present one."""
    found: list[str] = []
    for old in range(version, VERSIONS[component]):
        found += _UPGRADES[component, old][dialect.name]
    return [filled(dialect, one, schema) for one in found]
