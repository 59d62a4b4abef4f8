CREATE TABLE IF NOT EXISTS ternmq_sequence (
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
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
CREATE TABLE IF NOT EXISTS ternmq_sequence_item (
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
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
INSERT INTO ternmq_schema (component, version) VALUES ('sequence', 1);
