CREATE TABLE IF NOT EXISTS ternmq_inbox (
    consumer text   NOT NULL,
    id       bytea  NOT NULL,
    until_ms bigint NOT NULL,
    result   bytea,
    PRIMARY KEY (consumer, id)
);
CREATE INDEX IF NOT EXISTS ternmq_inbox_until ON ternmq_inbox (until_ms);
INSERT INTO ternmq_schema (component, version) VALUES ('inbox', 1);
