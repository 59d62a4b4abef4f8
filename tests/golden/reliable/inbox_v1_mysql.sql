CREATE TABLE IF NOT EXISTS ternmq_inbox (
    consumer varbinary(512) NOT NULL,
    id       varbinary(128) NOT NULL,
    until_ms bigint         NOT NULL,
    result   mediumblob,
    PRIMARY KEY (consumer, id),
    KEY ternmq_inbox_until (until_ms)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
INSERT INTO ternmq_schema (component, version) VALUES ('inbox', 1);
