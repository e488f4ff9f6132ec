-- +millrace needs 20261121126000
-- +goose Up

-- triggers are what users have bound to topics, webhooks and schedules (internal/trigger).
-- The document is the definition as it was applied, less what has a column: json and not
-- jsonb, so that what it holds for executors stays as it was written.
CREATE TABLE triggers (
    id          text        PRIMARY KEY COLLATE "C",
    uid         uuid        NOT NULL UNIQUE,
    type        text        NOT NULL CONSTRAINT triggers_known_type CHECK (type IN ('kafka', 'webhook', 'schedule')),
    tenant      text        NOT NULL,
    revision    bigint      NOT NULL DEFAULT 1,
    enabled     boolean     NOT NULL,
    document    json        NOT NULL,
    kafka_group text        NOT NULL DEFAULT '', -- empty: it has none
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by  text        NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_by  text        NOT NULL
);

CREATE INDEX triggers_kafka_group ON triggers (kafka_group) WHERE kafka_group <> '';

-- trigger_changes has one row. Who changes triggers locks it first, so that there is one
-- change at a time; who follows them asks it whether there is anything new.
CREATE TABLE trigger_changes (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint  NOT NULL
);
INSERT INTO trigger_changes (version) VALUES (0);

-- deleted_triggers are the last of each name that were deleted: a group that one has used
-- has its place in the topics still.
CREATE TABLE deleted_triggers (
    id          text        PRIMARY KEY COLLATE "C",
    uid         uuid        NOT NULL,
    kafka_group text        NOT NULL,
    deleted_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    deleted_by  text        NOT NULL
);

-- +goose Down
DROP TABLE deleted_triggers;
DROP TABLE trigger_changes;
DROP TABLE triggers;
