-- +goose Up

-- A person may take an event out of the way of its aggregate. It was never
-- published then, and says so.
ALTER TABLE outbox_events
    DROP CONSTRAINT outbox_events_status_check,
    ADD CONSTRAINT outbox_events_status_check CHECK (status IN ('PENDING', 'PUBLISHED', 'FAILED', 'SKIPPED')),
    -- The seq of the row that this one is a copy of, published once more. Copies are
    -- not copied again, so that overlapping republishes do not multiply.
    ADD COLUMN republished_from bigint;

DROP INDEX outbox_events_blocking;
CREATE INDEX outbox_events_blocking ON outbox_events (shard, aggregate_type, aggregate_id)
    WHERE attempts > 0 AND status IN ('PENDING', 'FAILED');

-- What people did to the outbox, and why. Written in the transaction of the deed.
CREATE TABLE outbox_actions (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor          text        NOT NULL,
    action         text        NOT NULL CHECK (action IN ('retry', 'skip', 'republish')),
    reason         text        NOT NULL,
    -- How many rows it was about. One row here per event, or per republish.
    events         bigint      NOT NULL,
    -- Of an event that was retried or skipped, as it was before.
    seq            bigint,
    event_id       uuid,
    aggregate_type text,
    aggregate_id   text,
    topic          text,
    attempts       integer,
    last_error     text,
    -- Of a republish: which rows were asked for, by created_at.
    created_from   timestamptz,
    created_before timestamptz
);

-- +goose Down
DROP TABLE outbox_actions;
DROP INDEX outbox_events_blocking;
DELETE FROM outbox_events WHERE status = 'SKIPPED';
ALTER TABLE outbox_events
    DROP COLUMN republished_from,
    DROP CONSTRAINT outbox_events_status_check,
    ADD CONSTRAINT outbox_events_status_check CHECK (status IN ('PENDING', 'PUBLISHED', 'FAILED'));
CREATE INDEX outbox_events_blocking ON outbox_events (shard, aggregate_type, aggregate_id)
    WHERE attempts > 0 AND status <> 'PUBLISHED';
