CREATE TABLE IF NOT EXISTS ternmq_schema (
    component text PRIMARY KEY,
    version   integer NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ternmq_outbox (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    state        integer NOT NULL DEFAULT 0,
    by_writer    integer NOT NULL,
    tries        integer NOT NULL DEFAULT 0,
    written_ms   integer NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
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
);
CREATE INDEX IF NOT EXISTS ternmq_outbox_state ON ternmq_outbox (state);
CREATE TABLE IF NOT EXISTS ternmq_lease (
    name     text PRIMARY KEY,
    epoch    integer NOT NULL DEFAULT 0,
    holder   text    NOT NULL DEFAULT '',
    until_ms integer NOT NULL DEFAULT 0,
    tick     integer NOT NULL DEFAULT -1
) WITHOUT ROWID;
INSERT INTO ternmq_schema (component, version) VALUES ('outbox', 1);
