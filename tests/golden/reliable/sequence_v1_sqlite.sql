CREATE TABLE IF NOT EXISTS ternmq_sequence (
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
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ternmq_sequence_state ON ternmq_sequence (state, next_ms);
CREATE TABLE IF NOT EXISTS ternmq_sequence_item (
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
);
INSERT INTO ternmq_schema (component, version) VALUES ('sequence', 1);
