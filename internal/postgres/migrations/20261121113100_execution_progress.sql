-- +goose Up

-- execution_progress is what running attempts tell of themselves: one row per
-- execution that has told anything, written with the renewal of its lease. It is no
-- part of the aggregate and has no events. The checkpoint outlives its attempt: the
-- next one is given it. Rows of executions that have ended are removed in time.
CREATE TABLE execution_progress (
    execution_id       uuid             PRIMARY KEY,
    -- The attempt that done, total, message and reported_at are from.
    attempt            integer          NOT NULL,
    done               double precision,
    total              double precision,
    message            text,
    reported_at        timestamptz,
    -- The attempt that the checkpoint is from.
    checkpoint_attempt integer,
    checkpoint         bytea,
    checkpoint_at      timestamptz
);

-- +goose Down
DROP TABLE execution_progress;
