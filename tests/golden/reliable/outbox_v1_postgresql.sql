CREATE TABLE IF NOT EXISTS ternmq_schema (
    component text PRIMARY KEY,
    version   integer NOT NULL
);
CREATE TABLE IF NOT EXISTS ternmq_outbox (
    seq          bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state        smallint NOT NULL DEFAULT 0,
    by_writer    smallint NOT NULL,
    tries        integer  NOT NULL DEFAULT 0,
    written_ms   bigint   NOT NULL DEFAULT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint),
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
);
ALTER TABLE ternmq_outbox ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX IF NOT EXISTS ternmq_outbox_state ON ternmq_outbox (state, seq);
CREATE TABLE IF NOT EXISTS ternmq_lease (
    name     text PRIMARY KEY,
    epoch    bigint NOT NULL DEFAULT 0,
    holder   text   NOT NULL DEFAULT '',
    until_ms bigint NOT NULL DEFAULT 0,
    tick     bigint NOT NULL DEFAULT -1
);
INSERT INTO ternmq_schema (component, version) VALUES ('outbox', 1);
