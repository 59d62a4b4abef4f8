CREATE TABLE IF NOT EXISTS ternmq_inbox (
    consumer text    NOT NULL,
    id       blob    NOT NULL,
    until_ms integer NOT NULL,
    result   blob,
    PRIMARY KEY (consumer, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ternmq_inbox_until ON ternmq_inbox (until_ms);
INSERT INTO ternmq_schema (component, version) VALUES ('inbox', 1);
