CREATE TABLE IF NOT EXISTS ternmq_sequence (
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
);
CREATE INDEX IF NOT EXISTS ternmq_sequence_state ON ternmq_sequence (state, next_ms);
CREATE TABLE IF NOT EXISTS ternmq_sequence_item (
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
);
INSERT INTO ternmq_schema (component, version) VALUES ('sequence', 1);
