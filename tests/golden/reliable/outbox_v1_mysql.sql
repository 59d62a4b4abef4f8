CREATE TABLE IF NOT EXISTS ternmq_schema (
    component varbinary(64) NOT NULL PRIMARY KEY,
    version   integer NOT NULL
) ENGINE=InnoDB;
CREATE TABLE IF NOT EXISTS ternmq_outbox (
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
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
CREATE TABLE IF NOT EXISTS ternmq_lease (
    name     varbinary(255) NOT NULL PRIMARY KEY,
    epoch    bigint         NOT NULL DEFAULT 0,
    holder   varbinary(255) NOT NULL DEFAULT '',
    until_ms bigint         NOT NULL DEFAULT 0,
    tick     bigint         NOT NULL DEFAULT -1
) ENGINE=InnoDB;
INSERT INTO ternmq_schema (component, version) VALUES ('outbox', 1);
