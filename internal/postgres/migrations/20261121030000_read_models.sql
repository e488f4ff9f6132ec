-- +goose Up

-- event_log (internal/eventlog) keeps every record of the recorded topics byte for
-- byte, with where it lay. It is the history that projections are rebuilt from,
-- that replays read, and that an execution's events are listed from. Rows are only
-- ever inserted. A record that could not be decoded has no type, source, event_id.
CREATE TABLE event_log (
    topic       text        NOT NULL,
    -- The broker's identity of the topic: one that was made anew counts from 0 again.
    topic_id    uuid        NOT NULL,
    partition   integer     NOT NULL,
    "offset"    bigint      NOT NULL,
    key         bytea,
    type        text,
    source      text,
    event_id    text,
    subject     text        COLLATE "C",
    sequence    bigint      NOT NULL DEFAULT 0,
    -- The event's own time, or the record's where the event has none.
    time        timestamptz NOT NULL,
    -- The record's time: the producer's or the broker's, as the topic keeps it.
    appended_at timestamptz NOT NULL,
    -- Ordered, multi-valued, binary: see eventlog.EncodeHeaders.
    headers     bytea       NOT NULL,
    value       bytea,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, topic_id, partition, "offset")
);

-- The history of one aggregate, in order.
CREATE INDEX event_log_subject ON event_log (subject, sequence, topic_id, partition, "offset")
    WHERE subject IS NOT NULL;

-- execution_views (projections) is what lists and searches read: one row per
-- execution, built from its events. Columns named *_version hold the version of
-- the event that the group of columns before them comes from: a value is replaced
-- only by that of a later event, so any order and any repetition of the events
-- gives the same row. Until its "requested" has arrived a row is not listed.
CREATE TABLE execution_views (
    id              text        COLLATE "C" PRIMARY KEY,
    -- From "requested", which comes once.
    tenant          text,
    user_name       text,
    name            text        COLLATE "C",
    executor        text,
    resource_class  text,
    priority        smallint,
    concurrency_key text,
    labels          jsonb,
    origin_kind     text,
    rerun_of        text,
    not_before      timestamptz,
    requested_at    timestamptz,
    -- The highest version and attempt of any event.
    version         bigint      NOT NULL,
    attempt         integer     NOT NULL,
    state           text,
    state_version   bigint      NOT NULL,
    queued_at       timestamptz,
    ready_at        timestamptz,
    queued_version  bigint      NOT NULL,
    scheduled_at      timestamptz,
    waited_millis     bigint,
    scheduled_version bigint    NOT NULL,
    started_at      timestamptz,
    started_version bigint      NOT NULL,
    -- The last worker that ran it; kept while it waits for its next attempt.
    worker          text,
    worker_version  bigint      NOT NULL,
    finished_at     timestamptz,
    duration_millis bigint,
    -- Why it ended, or why its last attempt came to nothing.
    exit_code       integer,
    signal          text,
    reason          text,
    message         text,
    stdout_bytes    bigint,
    stderr_bytes    bigint,
    result_version  bigint      NOT NULL,
    cancel_requested_at      timestamptz,
    cancel_requested_version bigint NOT NULL
) WITH (fillfactor = 70);

-- Every list is newest first and pages by (requested_at, id), so each index ends
-- with these two: the filter and the order are served by one scan.
CREATE INDEX execution_views_newest   ON execution_views (requested_at DESC, id DESC);
CREATE INDEX execution_views_by_state ON execution_views (state, requested_at DESC, id DESC);
CREATE INDEX execution_views_by_user  ON execution_views (user_name, requested_at DESC, id DESC);
CREATE INDEX execution_views_by_name  ON execution_views (name, requested_at DESC, id DESC) WHERE name IS NOT NULL;
-- Most executions have no labels; those do not burden the index.
CREATE INDEX execution_views_by_label ON execution_views USING gin (labels jsonb_path_ops) WHERE labels IS NOT NULL;

-- +goose Down
DROP TABLE execution_views;
DROP TABLE event_log;
